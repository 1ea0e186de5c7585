package comm_test

import (
	"fmt"

	"halognn/src/ranks/comm"
)

// Ranks are goroutines here, and processes with package comm/mpi: the function is the same.
func ExampleRunWorld() {
	err := comm.RunWorld(3, func(c comm.Comm) error {
		all, err := comm.Allgather(c, 10*c.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println("rank 0 of", c.Size(), "knows", all)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 0 of 3 knows [0 10 20]
}

// One rank that fails makes all fail, with the words of the one: nobody waits in the next
// collective for a rank that has gone.
func ExampleAgree() {
	errs := make([]error, 2)
	_ = comm.RunWorld(2, func(c comm.Comm) error {
		var mine error
		if c.Rank() == 1 {
			mine = fmt.Errorf("the disk is full")
		}
		errs[c.Rank()] = comm.Agree(c, mine)
		return nil
	})
	fmt.Println("rank 0:", errs[0])
	fmt.Println("rank 1:", errs[1])
	// Output:
	// rank 0: rank 1: the disk is full
	// rank 1: rank 1: the disk is full
}
