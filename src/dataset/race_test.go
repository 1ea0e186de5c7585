//go:build race

package dataset_test

// raceDetector is on: loops over whole matrices take 30 times as long.
const raceDetector = true
