package session

import (
	"fmt"

	"halognn/src/ranks/comm"
	"halognn/src/step/job"
)

// GroupByNode sets in spec the number of ranks of a node, if minibatches depend on it. In that case
// it returns an error unless every node has the same number of consecutive ranks. Collective.
func (s *Session) GroupByNode(spec *job.Spec) error {
	if !spec.ByNode() {
		return nil
	}
	here, err := comm.RanksHere(s.Comm, s.RanksPerNode)
	if err != nil {
		return err
	}
	// for every rank, the first rank and the number of ranks on its node
	all, err := comm.Allgather(s.Comm, here[0], len(here))
	if err != nil {
		return err
	}
	size := all[1]
	for r := range s.Comm.Size() {
		if all[2*r] != r-r%size || all[2*r+1] != size {
			return comm.AgreedOn(s.Comm, fmt.Errorf("with parallel.mode %s and sample.share %s "+
				"every node needs the same number of consecutive ranks, because its ranks train "+
				"together or draw alike. But rank %d is one of %d ranks on a node that begins "+
				"with rank %d. Start the same number of consecutive ranks on every node (mpirun "+
				"--map-by ppr:N:node, srun --distribution=block), or set run.ranks_per_node to "+
				"a divisor of the number of ranks",
				spec.Mode.Name, spec.Sample.Numbers.Share, r, all[2*r+1], all[2*r]))
		}
	}
	spec.RanksPerNode = size
	return nil
}
