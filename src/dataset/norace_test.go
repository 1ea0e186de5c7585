//go:build !race

package dataset_test

const raceDetector = false
