//go:build race

package sample

// raceDetector is on: samplers of one worker share nothing.
const raceDetector = true
