package parallel

import (
	"testing"

	"halognn/src/devices/compute"
)

// A minibatch keeps its drawing. One that finds none left is told so: in evaluation the host draws
// it.
func TestMinibatchesShareTheDrawingsLeft(t *testing.T) {
	d, first, second := deviceDraws{spare: make([]compute.Drawing, 1)}, Minibatch{}, Minibatch{}
	d.spare[0] = struct{ compute.Drawing }{}
	for range 2 {
		if !d.lend(&first) || first.card.drawing == nil {
			t.Error("a minibatch does not keep the one drawing")
		}
	}
	if d.lend(&second) {
		t.Error("a second minibatch has a drawing, but there is one for the first alone")
	}
}
