//go:build !cgo || !mpi

// Package mpi implements comm.Comm with MPI. This file is for builds without MPI, which lack the
// tag mpi or cgo. In them Run returns an error, and comm.RunWorld can run several ranks in one
// process.
package mpi

import (
	"errors"
	"os"

	"halognn/src/ranks/comm"
)

// Available reports whether the program was built with MPI.
const Available = false

// Run returns an error: there is no MPI in this build.
func Run(func(world comm.Comm) error) error {
	return errors.New("this program was built without MPI; install libopenmpi-dev and " +
		"openmpi-bin and run make build")
}

// Library returns the name of the MPI library.
func Library() string { return "none (built without the tag mpi)" }

// Standard returns the version of the MPI standard.
func Standard() string { return "" }

// ThreadLevel returns the level of thread support.
func ThreadLevel() string { return "" }

// Abort ends the process with an exit code.
func Abort(code int) { os.Exit(code) }
