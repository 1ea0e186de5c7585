//go:build !race

package sample

const raceDetector = false
