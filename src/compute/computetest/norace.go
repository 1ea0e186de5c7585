//go:build !race

package computetest

const raceDetector = false
