//go:build race

package tests

// raceDetector is on: the program is built with it too.
const raceDetector = true
