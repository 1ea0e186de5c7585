package pipeline_test

import (
	"context"
	"fmt"

	"halognn/src/ranks/pipeline"
)

// Items are prepared on several goroutines, with up to Depth of them under way besides the one that
// is consumed, and come to the consumer in their order.
func ExamplePipeline_Run() {
	type minibatch struct{ seed, square int }
	items := []*minibatch{{}, {}, {}} // Depth + 1, reused
	p, err := pipeline.New(items, []pipeline.Stage[minibatch]{
		{Name: "square", Local: func(m *minibatch) error {
			m.square = m.seed * m.seed
			return nil
		}},
	}, pipeline.Options{Depth: 2, Workers: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	err = p.Run(context.Background(), 5,
		func(step int, m *minibatch) { m.seed = step + 1 },
		func(step int, m *minibatch) error {
			fmt.Println("step", step, "trains", m.square)
			return nil
		})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 0 trains 1
	// step 1 trains 4
	// step 2 trains 9
	// step 3 trains 16
	// step 4 trains 25
}
