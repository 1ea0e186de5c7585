package train

import (
	"fmt"

	"halognn/src/exchange"
)

// openApart opens a cache where no rank sees the whole topology: one that needs nothing of it.
// Collective.
func (s *session) openApart() (exchange.Cache, error) {
	p := s.policy()
	if p.Whole != "" || p.Static() || s.o.Cache.HaloFraction > 0 {
		return nil, fmt.Errorf("cache.policy %s cannot be had with a partitioned topology: %s", p.Name, p.Whole)
	}
	var err error
	s.dynamic, err = s.openDynamic(nil)
	return nil, err
}
