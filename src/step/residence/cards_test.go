package residence

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
)

// broken is a device that has room for rows and, on some ranks, fails to hold them.
type broken struct {
	compute.Accelerator
	err error
}

func (b *broken) FreeBytes() int { return 1 << 20 }

func (b *broken) HoldRows(int, int, []byte, int) ([]byte, error) { return nil, b.err }

// A device that fails on one node is an error of every rank: those of other nodes would wait for
// it.
func TestEveryNodeHearsOfABrokenDevice(t *testing.T) {
	shards := generated(t, 4)
	for _, shared := range []bool{true, false} {
		err := onRanks(comm.NewWorld(4), 2, shards, sage(), func(s *Store) error {
			node, err := comm.NodeOf(s.Comm, 2)
			if err != nil {
				return err
			}
			defer node.Free()
			d := new(broken)
			if s.Comm.Rank() == 0 {
				d.err = errors.New("out of order")
			}
			among := node
			if !shared {
				among = nil
			}
			_, err = s.holdRows(among, d, shards.Parts, 0, make([]byte, shards.RowBytes()))
			if !comm.IsAgreed(err) || !strings.Contains(err.Error(), "out of order") {
				return fmt.Errorf("rank %d, shared %v: %v", s.Comm.Rank(), shared, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
