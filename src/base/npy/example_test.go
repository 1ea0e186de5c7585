package npy_test

import (
	"fmt"
	"os"
	"path/filepath"

	"halognn/src/base/npy"
)

// A matrix is written whole or not at all, with a hash to verify it by, and mapped as it lies: its
// pages are read when they are touched, and shared by the ranks of a node.
func Example() {
	dir, err := os.MkdirTemp("", "npy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "rows.npy")
	written, err := npy.WriteFile(path, []float32{1, 2, 3, 4, 5, 6}, 3, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := npy.Hash(path)
	fmt.Println("as it was written:", err == nil && again == written.XXH64)
	rows, err := npy.Map[float32](path, -1, 2) // any number of rows of two columns
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rows.Close()
	fmt.Println(rows.Shape, rows.Data[2:4])
	_, err = npy.Map[float32](path, -1, 3)
	fmt.Println("as three columns:", err != nil)
	// Output:
	// as it was written: true
	// [3 2] [3 4]
	// as three columns: true
}
