//go:build race

package computetest

// raceDetector is on: kernels run for what their goroutines share. It changes no number, and takes
// 20 times as long for those of float64, which are compared without it.
const raceDetector = true
