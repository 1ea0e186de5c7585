//go:build race

package cpu

// raceDetector is on: it sees what Go reads and writes, not what C does.
const raceDetector = true
