package train

import (
	"fmt"

	"halognn/src/comm"
	"halognn/src/random"
)

// digestHeld sets the digest of what the ranks have at hand, if their draws depend on it. A run
// goes on with the same alone: the same cache, parts of a rank, and nodes. Collective.
func (r *run) digestHeld() error {
	if !r.job.FavoursNear() {
		return nil
	}
	own := random.Mix(r.near.Digest() + random.Golden*uint64(r.Comm.Rank()+1))
	all, err := comm.AgreeSum(r.Comm, own)
	r.held = fmt.Sprintf("%016x", all)
	return err
}
