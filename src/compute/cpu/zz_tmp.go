package cpu

func PlanCores(allowed []int, computeThreads, workers int) (compute, prepare []int, shared bool) {
	return nil, nil, true
}
func PinThread(cpu int) error { return pin([]int{cpu}) }
