//go:build !cgo

package cuda

import (
	"fmt"

	"halognn/src/devices/compute"
)

// Device cannot be opened, because this build has no C code.
type Device struct{ compute.PeerDevice }

// Open fails, because loading the library needs cgo.
func Open(Options) (*Device, error) { return nil, errPlain() }

// Devices fails, as Open does.
func Devices() (int, error) { return 0, errPlain() }

// BLAS fails, as Open does.
func BLAS() (string, error) { return "", errPlain() }

// Choose fails, as Open does.
func Choose(int) (*Choice, error) { return nil, errPlain() }

// CopyNow fails, as Open does.
func CopyNow(dst, src []byte) error { return errPlain() }

func errPlain() error {
	return fmt.Errorf("compute/cuda: %w: this program was built without cgo; set compute.device "+
		"to cpu", ErrNoLibrary)
}
