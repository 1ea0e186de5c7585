package residence

import "testing"

// An own row costs nothing; the ratio has two digits and stays within 0 and 1 whatever the clock
// says.
func TestPeerRatio(t *testing.T) {
	for _, c := range []struct{ own, peer, far, want float64 }{
		{1, 2, 11, 0.1}, {1, 1, 11, 0}, {2, 1, 11, 0}, {1, 20, 11, 1}, {1, 2, 1, 1}, {1, 2, 0.5, 1},
		{0, 1, 3, 0.33},
	} {
		if got := peerRatio(c.own, c.peer, c.far); got != c.want {
			t.Errorf("own %g, peer %g, far %g: %g, want %g", c.own, c.peer, c.far, got, c.want)
		}
	}
}
