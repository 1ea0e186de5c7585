//go:build race

package race

// Detector is whether the race detector is on.
const Detector = true
