package config_test

import (
	"fmt"

	"halognn/src/runs/config"
)

// All faults of a config come at once, so that a job that waits in a queue is mended once.
func ExampleLoad() {
	_, err := config.Load("", []string{"sample.fanout=10,5", "train.epochs=ten"})
	fmt.Println(err)
	// Output:
	// the settings of --set:
	//   --set sample.fanout=10,5: unknown key sample.fanout; did you mean sample.fanouts?
	//   --set train.epochs=ten: train.epochs is "ten"; it must be a whole number
}

// A key is in the table with all that its users ask of it: the page, a report, a resumed run.
func ExampleHas() {
	fmt.Println("a resumed run may have another")
	fmt.Println("depth:", config.Has("pipeline.depth", config.MayChange))
	fmt.Println("batch:", config.Has("sample.batch", config.MayChange))
	// Output:
	// a resumed run may have another
	// depth: true
	// batch: false
}
