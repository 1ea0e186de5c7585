//go:build race

package parallel

const raceDetector = true
