package nn_test

import (
	"fmt"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
)

// One layer without neighbours learns that the larger column is the class. A step is: logits, loss
// and their gradient, gradients of the weights, the update. Between the last two, ranks add theirs.
func ExampleModel() {
	dev := ref.New()
	m, err := nn.NewModel(dev, nn.Config{Kind: "mlp", Layers: 1, In: 2, Out: 2,
		Norm: nn.NormNone, Task: task.Multiclass}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	opt, err := nn.NewOptimizer(dev, m.Params, nn.DefaultOptimizer(nn.Adam))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer opt.Close()
	seeds := compute.Matrix{Rows: 4, Cols: 2, Data: []float32{3, 1, 0, 2, 5, 4, 1, 3}}
	labels := make([]byte, 4*4)
	for seed, class := range []int32{0, 1, 0, 1} {
		task.PutClass(labels[4*seed:], class)
	}
	b := &nn.Batch{Hops: []nn.Hop{{Sources: 4, Destinations: 4}}, Own: seeds, Labels: labels,
		GlobalSeeds: 4, Train: true}
	for step := range 200 {
		logits, err := m.Forward(b)
		if err != nil {
			fmt.Println(err)
			return
		}
		stats, dlogits := m.Loss(b, logits)
		m.Backward(dlogits, nil)
		opt.Update(0.05)
		if step == 0 || step == 199 {
			fmt.Printf("step %d: loss below 0.1: %t\n", step, stats.Loss < 0.1)
		}
	}
	// Output:
	// step 0: loss below 0.1: false
	// step 199: loss below 0.1: true
}

// A linear rise of two steps, then half the rate after every four.
func ExampleSchedule_LR() {
	s := nn.Schedule{Kind: nn.ScheduleStep, Base: 0.4, Warmup: 2, Every: 4, Gamma: 0.5}
	for step := range 12 {
		fmt.Print(s.LR(step, 12), " ")
	}
	// Output:
	// 0.2 0.4 0.4 0.4 0.4 0.4 0.2 0.2 0.2 0.2 0.1 0.1
}
