package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"halognn/src/nn"
	"halognn/src/policy"
	"halognn/src/sample"
)

// faults returns all errors in the values.
func (c *Config) faults() []string { return c.faultsOf(func(*Key) bool { return true }) }

// faultsOf returns the errors in the values of some keys, each by itself, and in combinations of
// values.
func (c *Config) faultsOf(of func(*Key) bool) (faults []string) {
	for _, k := range c.keys() {
		if fault := k.fault(k.Name, plain(k.Brief)); fault != "" && of(k) {
			faults = append(faults, fault)
		}
	}
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	kind := nn.FindKind(c.Model.Kind)
	reads := kind == nil || kind.ReadsNeighbours
	if m := c.Model; kind != nil && kind.HasHeads && m.HeadMerge == nn.HeadsConcat &&
		(m.Layers > 1 || m.Jumping != nn.JumpNone) && m.Heads > 0 && m.Hidden%m.Heads != 0 {
		bad("model.hidden is %d, which is not a multiple of model.heads, %d, whose rows lie side by "+
			"side; change one of the two, or set model.head_merge=mean", m.Hidden, m.Heads)
	}
	for _, f := range []struct {
		key        string
		list       []int
		mayBeEmpty bool
	}{{"fanouts", c.Sample.Fanouts, false}, {"eval_fanouts", c.Sample.EvalFanouts, true}} {
		n := len(f.list)
		if reads && n != c.Model.Layers && c.Model.Layers >= 1 && !(n == 0 && f.mayBeEmpty) {
			bad("sample.%s has %d entries but model.layers is %d; give one fanout per layer, "+
				"seed hop first", f.key, n, c.Model.Layers)
		}
	}
	drawn := sample.Spec{Kind: sample.Kind(c.Sample.Kind)}
	model := nn.Config{Kind: c.Model.Kind, Aggregation: c.Model.Aggregation}
	if kind != nil && reads && drawn.Estimates() && !model.Weighs() {
		maxima := ""
		if model.TakesMaxima() {
			maxima = " with model.aggregation max"
		}
		bad("sample.kind %s weighs edges by the probability that it drew them, which model.kind %s%s "+
			"cannot use; choose sample.kind=%s, or model.kind sage with means, gcn or gin", drawn.Kind,
			c.Model.Kind, maxima, sample.Neighbour)
	}
	if reads && c.Sample.Locality > 1 {
		faults = append(faults, c.localityFaults(drawn)...)
	} else if reads && c.Sample.LocalityAdapt {
		bad("sample.locality_adapt adapts a factor up to sample.locality, which is %g; set "+
			"sample.locality=8, or sample.locality_adapt=false", c.Sample.Locality)
	}
	if c.Sample.LocalityLower > c.Sample.LocalityUpper {
		bad("sample.locality_lower is %g, above sample.locality_upper, which is %g; exchange them",
			c.Sample.LocalityLower, c.Sample.LocalityUpper)
	}
	if reads && drawn.Estimates() && !drawn.HasFanouts() {
		faults = append(faults, c.withoutFanouts()...)
	}
	if c.Topology.Kind == TopologyPartitioned {
		faults = append(faults, c.partitioned()...)
	}
	if c.shares() {
		faults = append(faults, c.shared()...)
	}
	if c.Exchange.Sums == SumsOn {
		faults = append(faults, c.summed()...)
	}
	if c.Parallel.Mode == ModePushPull {
		faults = append(faults, c.pushPull()...)
	}
	return append(faults, c.placed()...)
}

// summed returns what a run cannot have whose owners add rows.
func (c *Config) summed() []string {
	return refused("exchange.sums", SumsOn, SumsOff, c.unsummed())
}

// WithoutSums says why owners cannot add rows; "" if they can.
func (c *Config) WithoutSums() string {
	for _, f := range c.unsummed() {
		if f.bad {
			return f.key + ": " + f.why
		}
	}
	return ""
}

// unsummed lists what may be bad where owners add rows.
func (c *Config) unsummed() []combination {
	model := nn.Config{Kind: c.Model.Kind, Aggregation: c.Model.Aggregation}
	known := nn.FindKind(c.Model.Kind) != nil
	return []combination{
		{known && !model.Needs().OnlySums(), "model.kind " + c.Model.Kind,
			"its input layer reads rows themselves", "model.kind=sage, gcn or gin"},
		{c.Parallel.Mode != ModeData, "parallel.mode " + c.Parallel.Mode,
			"only ranks with minibatches of their own fetch the rows of others",
			"parallel.mode=" + ModeData},
		{c.Cache.Source == SourceFiles, "cache.source " + SourceFiles,
			"rows are then read from files, and none travels", "cache.source=" + SourceOwners},
		{c.Cache.Level && slices.Contains(Readers("cache.level"), c.Cache.Policy), "cache.level",
			"look-ahead then keeps what saves sums and fetches nothing early", "cache.level=false"},
	}
}

// placed returns what a run cannot have whose ranks share caches or read rows from files.
func (c *Config) placed() (faults []string) {
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	p := policy.Find(c.Cache.Policy)
	changes := p != nil && !p.Static()
	for _, k := range []struct {
		key, word, normal string
		changes           bool
	}{
		{"cache.placement", c.Cache.Placement, PlacementOwn, changes},
		{"cache.source", c.Cache.Source, SourceOwners, changes || c.Cache.Policy == policyAuto},
	} {
		if k.changes && k.word != k.normal {
			bad("%s is %s, which is for caches that do not change, and that of cache.policy %s "+
				"does; choose a static cache.policy (%s), or %s=%s", k.key, k.word,
				c.Cache.Policy, OrList(staticPolicies()), k.key, k.normal)
		}
	}
	if c.Cache.Source != SourceFiles {
		if c.Cache.Placement == PlacementParts {
			bad("cache.placement is %s, but a rank reads the rows of its own parts in memory and "+
				"needs no cache for them; set cache.source=%s, or cache.placement=%s",
				PlacementParts, SourceFiles, PlacementGroup)
		}
		return faults
	}
	if c.Cache.HaloFraction > 0 {
		bad("cache.halo_fraction is %g, but with cache.source=%s all rows are remote and a rank has "+
			"no halo; set cache.alpha", c.Cache.HaloFraction, SourceFiles)
	}
	return faults
}

// localityFaults returns what a run cannot have if what it draws depends on what a rank holds.
func (c *Config) localityFaults(drawn sample.Spec) (faults []string) {
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("sample.locality is %g, with which ", c.Sample.Locality)+
			fmt.Sprintf(format, args...)+", or sample.locality=1")
	}
	if !drawn.Estimates() {
		bad("sample.kind %s cannot be had, because it draws all neighbours alike; choose sample.kind=%s "+
			"or %s", drawn.Kind, sample.Poisson, sample.LADIES)
	}
	if c.Sample.Kernel == KernelCOO {
		bad("sample.kernel %s cannot be had; choose sample.kernel=fused", KernelCOO)
	}
	peerCost, _ := ParseCost(c.Cache.PeerCost) // its own fault is reported with the key
	held := policy.Settings{Policy: c.Cache.Policy, Placement: c.Cache.Placement, PeerCost: peerCost}
	adapts := c.Sample.LocalityAdapt
	switch key, why := held.Unsettled(adapts); key {
	case "":
	case policy.KeyPeerCost:
		bad("%s auto cannot be had, because %s; choose %s=%g", key, why, key, policy.AssumedPeerCost)
	default:
		bad("%s %s cannot be had, because %s; choose %s=%s", key, c.Cache.Policy, why, key,
			OrList(policy.Names(func(p *policy.Policy) bool {
				return !p.Foresees && (p.Static() || !adapts) && (drawn.HasFanouts() || !p.Fanouts)
			})))
	}
	return faults
}

// withoutFanouts returns what a run cannot have if no fanouts say how many neighbours are drawn.
func (c *Config) withoutFanouts() (faults []string) {
	held := policy.Settings{Policy: c.Cache.Policy, Initial: c.Cache.Initial}
	what, why := held.OfFanouts(), "it follows from fanouts"
	if c.Cache.Policy == policyAuto {
		what, why = "cache.policy "+policyAuto, "among what it tries are policies that follow from them"
	}
	if what != "" {
		faults = append(faults, fmt.Sprintf("sample.kind is %s, which has no fanouts: %s cannot be had, "+
			"because %s; choose cache.policy=%s, or sample.kind=%s", c.Sample.Kind, what, why,
			OrList(policy.Names(func(p *policy.Policy) bool {
				return policy.Trainable(p) && !p.Fanouts
			})), sample.Neighbour))
	}
	return faults
}

// partitioned returns what a run cannot have if no rank sees the whole topology.
func (c *Config) partitioned() (faults []string) {
	bad := func(format string, args ...any) {
		faults = append(faults,
			fmt.Sprintf("topology.kind is %s, with which ", TopologyPartitioned)+
				fmt.Sprintf(format, args...)+", or topology.kind="+TopologyReplicated)
	}
	if drawn := (sample.Spec{Kind: sample.Kind(c.Sample.Kind)}); drawn.NeedsWhole() {
		bad("sample.kind %s cannot be had, because ranks do not send each other the degrees and weights "+
			"that it needs; choose sample.kind=%s", c.Sample.Kind, sample.Neighbour)
	}
	why := ""
	if p := policy.Find(c.Cache.Policy); p != nil {
		why = p.Whole
	} else if c.Cache.Policy == policyAuto {
		why = "it samples minibatches ahead of time, to count what each cache would transfer"
	}
	if why != "" {
		bad("cache.policy %s cannot be had, because %s; choose cache.policy=%s", c.Cache.Policy,
			why, OrList(alone()))
	}
	if c.Cache.Placement != PlacementOwn {
		bad("cache.placement %s cannot be had, because the ranks of a node rank the vertices of "+
			"the whole graph together; choose cache.placement=%s", c.Cache.Placement, PlacementOwn)
	}
	if c.Cache.Source == SourceFiles {
		bad("cache.source %s cannot be had, because a cache of any rows is chosen in the whole "+
			"graph; choose cache.source=%s", SourceFiles, SourceOwners)
	}
	if c.Cache.HaloFraction > 0 {
		bad("cache.halo_fraction cannot be had, because the halo is found in the whole graph; " +
			"set cache.alpha")
	}
	return faults
}

// shared returns what a run cannot have if ranks train minibatches together: all of them, or those of
// a node.
func (c *Config) shared() []string {
	split := c.Parallel.Mode == ModeSplit
	stays := policy.Names(func(p *policy.Policy) bool { return p.Static() && p.Name != policy.Halo1 })
	return c.without([]combination{
		{split && c.Cache.Policy != policy.None, "cache.policy " + c.Cache.Policy,
			"a rank reads the rows of its own vertices alone", "cache.policy=" + policy.None},
		{!split && c.Cache.Policy == policy.Halo1, "cache.policy " + c.Cache.Policy,
			"the halo of a node is divided among its ranks", "cache.policy=" + OrList(stays)},
		{!split && c.Cache.Policy != policy.Halo1 && !slices.Contains(stays, c.Cache.Policy),
			"cache.policy " + c.Cache.Policy,
			"rows that a rank passes on to others of its node must stay where they are",
			"cache.policy=" + OrList(stays)},
		{!split && c.Cache.Placement != PlacementOwn, "cache.placement " + c.Cache.Placement,
			"each rank of a node keeps other rows as it is",
			"cache.placement=" + PlacementOwn},
		{!split && c.Cache.HaloFraction > 0, "cache.halo_fraction",
			"the halo of a node is divided among its ranks", "cache.alpha"},
		{!split && c.Topology.Kind == TopologyPartitioned, "topology.kind " + c.Topology.Kind,
			"a rank also draws for vertices of other nodes, whose in-edges it would not hold",
			"topology.kind=" + TopologyReplicated},
		{c.Cache.Source == SourceFiles, "cache.source " + SourceFiles,
			"a rank reads the rows of its own vertices alone", "cache.source=" + SourceOwners},
		{c.Sample.Streams == "part", "sample.streams part",
			"each minibatch has seeds of several parts", "sample.streams=rank"},
		{c.Sample.Kind == string(sample.LADIES), "sample.kind " + c.Sample.Kind,
			"it draws from all neighbours of a layer, of which no rank has all",
			"sample.kind=" + string(sample.Neighbour)},
		{c.Sample.Locality > 1, "sample.locality",
			"ranks that share a minibatch draw alike, whatever one of them has at hand",
			"sample.locality=1"},
		{c.Sample.Kernel == KernelCOO, "sample.kernel " + KernelCOO,
			"it draws whole minibatches", "sample.kernel=fused"},
		{c.Model.Norm == nn.NormBatch, "model.norm " + nn.NormBatch,
			"its statistics are over all rows of a minibatch, of which no rank has all",
			"model.norm=" + nn.NormLayer},
	})
}

// pushPull returns what a run cannot have if ranks hold columns of the features.
func (c *Config) pushPull() []string {
	model := nn.Config{Kind: c.Model.Kind, Aggregation: c.Model.Aggregation}
	kind := "model.kind " + c.Model.Kind
	if model.TakesMaxima() {
		kind += " with model.aggregation max"
	}
	return c.without([]combination{
		{c.Cache.Policy != policy.None, "cache.policy " + c.Cache.Policy,
			"no feature row travels", "cache.policy=" + policy.None},
		{c.Cache.Source == SourceFiles, "cache.source " + SourceFiles,
			"a rank has columns of all rows in memory", "cache.source=" + SourceOwners},
		{c.Sample.Locality > 1, "sample.locality", "no row is nearer than another",
			"sample.locality=1"},
		{nn.FindKind(c.Model.Kind) != nil && !model.Linear(), kind,
			"its input layer is no sum over the columns of the features",
			"model.kind sage with means, gcn, gin or mlp"},
	})
}

// combination is a setting that a mode other than data, or a run whose owners add rows, may not have.
type combination struct {
	bad            bool
	key, why, cure string
}

// without returns the faults of settings that a mode may not have.
func (c *Config) without(all []combination) []string {
	return refused("parallel.mode", c.Parallel.Mode, ModeData, all)
}

// refused returns the faults of those settings that are bad while a key has a value, and not with
// another.
func refused(key, value, other string, all []combination) (faults []string) {
	for _, f := range all {
		if f.bad {
			faults = append(faults, fmt.Sprintf("%s is %s, with which %s cannot be had, because %s; "+
				"set %s, or %s=%s", key, value, f.key, f.why, f.cure, key, other))
		}
	}
	return faults
}

// alone returns the cache policies that need nothing of the graph but what a rank holds of it.
func alone() []string {
	return policy.Names(func(p *policy.Policy) bool { return policy.Trainable(p) && p.Whole == "" })
}

// staticPolicies returns the cache policies that fill a cache once.
func staticPolicies() []string {
	return policy.Names(func(p *policy.Policy) bool { return p.Static() && !p.None() })
}

// Changes returns an error about every key that must not change but differs from its value at the
// beginning of the run. A key that the run did not know had its default.
func (c *Config) Changes(began map[string]string) error {
	defaults := Default().Flat()
	var faults []error
	for _, k := range c.keys() {
		was, known := began[k.Name]
		if !known {
			was = defaults[k.Name]
		}
		if now := k.flat(); k.Traits&MayChange == 0 && now != was {
			faults = append(faults, fmt.Errorf("  %s is %s, the run began with "+
				"%s", k.Name, now, was))
		}
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("a run that goes on may change %s, not what makes its numbers; leave these "+
		"out, or begin another run:\n%w",
		strings.Join(c.mayChange(), ", "), errors.Join(faults...))
}

// mayChange lists the keys that may change, or section.* if all keys of a section may.
func (c *Config) mayChange() (names []string) {
	for _, s := range c.table() {
		var may []string
		for _, k := range s.keys {
			if k.Traits&MayChange != 0 {
				may = append(may, k.Name)
			}
		}
		if len(may) == len(s.keys) {
			may = []string{s.name + ".*"}
		}
		names = append(names, may...)
	}
	return names
}
