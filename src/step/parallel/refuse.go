package parallel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
)

// This file has the only list of combinations of settings that are refused. Package config checks
// words and numbers one by one.

// Refusals returns every combination of a job's settings that cannot be trained, with the reason
// and a cure. Other packages refuse unknown words; here they count as harmless.
func Refusals(s *job.Spec) []job.Refusal {
	var all []job.Refusal
	reads := nn.FindKind(s.Model.Kind) == nil || s.Model.ReadsNeighbours()
	if reads && s.Locality.Favours() {
		all = append(all, refused("sample.locality", fmt.Sprintf("%g", s.Locality.Favour), "1",
			localityRefuses(s))...)
	}
	if reads && s.Sample.Estimates() {
		all = append(all, refused("sample.kind", string(s.Sample.Kind), string(sample.Neighbour),
			estimatesRefuse(s))...)
	}
	if task.Stored(s.Model.Task).Embeds {
		all = append(all, linksRefuse(s)...)
	}
	if s.Model.Schema.Typed() {
		all = append(all, refused("the graph", "vertex types", "", typedRefuses(s))...)
	}
	if s.Model.LearnsRows() {
		all = append(all, refused("model.learned", fmt.Sprint(s.Model.Learned), "0",
			learnedRefuses(s))...)
	}
	if s.Sparse {
		all = append(all, refused("the graph", "sparse features", "", sparseRefuses(s))...)
	}
	if s.Partitioned {
		all = append(all, refused("topology.kind", "partitioned", "replicated",
			partitionedRefuses(s))...)
	}
	if m, err := ModeOf(s.Mode.Name); err == nil && m.refuses != nil {
		all = append(all, refused("parallel.mode", m.Name, ModeData, m.refuses(s))...)
	}
	if s.DrawOn == DrawDevice {
		all = append(all, refused("sample.on", DrawDevice, DrawAuto, deviceDrawRefuses(s))...)
	}
	if s.Model.EdgeIn > 0 {
		all = append(all, refused("model.edge_features", "true", "false", edgeRowsRefuse(s))...)
	}
	if s.Sums && !s.TrySums {
		all = append(all, refused("exchange.sums", "on", "off", sumsRefuse(s))...)
	}
	if s.AsNodes && !s.TryNodes {
		all = append(all, refused("exchange.nodes", "on", "off", nodesRefuse(s))...)
	}
	if s.HalfGradient {
		all = append(all, refused("train.gradient_dtype", "bf16", "float32", []clash{
			{s.Sum == SumFast, "train.allreduce mpi",
				"the library adds numbers as they travel, and would round after each addition",
				"train.allreduce=reproducible or auto"},
		})...)
	}
	all = append(all, refused("cache.placement", s.Cache.Placement, policy.PlacementOwn,
		placementRefuses(s))...)
	if s.Cache.FromFiles() {
		all = append(all, refused("cache.source", policy.SourceFiles, policy.SourceOwners,
			filesRefuse(s))...)
	}
	return all
}

// Check returns an error about all refusals of a job; nil if there are none.
func Check(s *job.Spec) error {
	var errs []error
	for _, r := range Refusals(s) {
		errs = append(errs, r)
	}
	return errors.Join(errs...)
}

// WithoutSums says why owners cannot sum rows for others; "" if they can.
func WithoutSums(s *job.Spec) string { return firstOf(sumsRefuse(s)) }

// WithoutNodes says why ranks of a node cannot fetch as one; "" if they can.
func WithoutNodes(s *job.Spec) string { return firstOf(nodesRefuse(s)) }

func firstOf(all []clash) string {
	for _, c := range all {
		if c.bad {
			return c.what + ": " + c.why
		}
	}
	return ""
}

// clash is a setting that cannot be combined with another one.
type clash struct {
	bad             bool
	what, why, cure string
}

// refused returns a refusal of the key's value for each clash that applies.
func refused(key, value, other string, all []clash) (refusals []job.Refusal) {
	for _, c := range all {
		if c.bad {
			refusals = append(refusals,
				job.Refusal{Key: key, Value: value, What: c.what, Why: c.why, Cure: c.cure,
					Other: other})
		}
	}
	return refusals
}

// policies lists the cache policies that a job could use instead.
func policies(keep func(*policy.Policy) bool) string {
	names := policy.Names(func(p *policy.Policy) bool { return policy.Trainable(p) && keep(p) })
	if n := len(names); n > 1 {
		return "cache.policy=" + strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	return "cache.policy=" + strings.Join(names, "")
}

// Cures that several combinations share.
const (
	noCache   = "cache.policy=" + policy.None
	owners    = "cache.source=" + policy.SourceOwners
	ownCache  = "cache.placement=" + policy.PlacementOwn
	neighbour = "sample.kind=" + string(sample.Neighbour)
)

// kindOf returns those fields of the model's configuration that refusals depend on, and the kind's
// name. Other fields may be invalid, and the job may be refused for this reason.
func kindOf(s *job.Spec) (c nn.Config, name string, known bool) {
	c = nn.Config{Kind: s.Model.Kind, Aggregation: s.Model.Aggregation, Schema: s.Model.Schema,
		In: s.Model.In}
	name = "model.kind " + s.Model.Kind
	if c.TakesMaxima() {
		name += " with model.aggregation max"
	}
	return c, name, nn.FindKind(c.Kind) != nil
}

// localityRefuses lists what cannot be combined with sample.locality, where draws depend on the
// rows that a rank holds.
func localityRefuses(s *job.Spec) []clash {
	adapts := s.Locality.Adapts
	key, why := s.Cache.Unsettled(adapts)
	held := clash{key == policy.KeyPolicy, "cache.policy " + s.Cache.Policy, why,
		policies(func(p *policy.Policy) bool {
			return !p.Foresees && (p.Static() || !adapts) && (s.Sample.HasFanouts() || !p.Fanouts)
		})}
	if key == policy.KeyPeerCost {
		held = clash{true, key + " auto", why, fmt.Sprintf("%s=%g", key, policy.AssumedPeerCost)}
	}
	return []clash{
		{!s.Sample.Estimates(), "sample.kind " + string(s.Sample.Kind),
			"it draws all neighbours with the same probability",
			fmt.Sprintf("sample.kind=%s or %s", sample.Poisson, sample.LADIES)},
		held,
	}
}

// estimatesRefuse lists what cannot be combined with a sampler that weighs edges by the probability
// that they were drawn.
func estimatesRefuse(s *job.Spec) []clash {
	model, name, known := kindOf(s)
	all := []clash{{known && !model.Weighs(), name,
		"it cannot weigh edges, and this sampler weighs them by the probability that they were " +
			"drawn",
		"model.kind sage with means, gcn, gin or rgcn"}}
	if s.Sample.HasFanouts() {
		return all
	}
	what, why := s.Cache.OfFanouts(), "it is computed from fanouts, and this sampler has none"
	return append(all, clash{what != "", what, why,
		policies(func(p *policy.Policy) bool { return !p.Fanouts })})
}

// partitionedRefuses lists what cannot be combined with a partitioned topology.
func partitionedRefuses(s *job.Spec) []clash {
	return []clash{
		{s.Locality.Favours() && s.Reads() && s.Sample.HasFanouts(), "sample.locality",
			"the owner that draws for a vertex does not know what is near to the rank that asks",
			"sample.locality=1 or sample.kind=" + string(sample.LADIES)},
	}
}

// typedRefuses lists what cannot be combined with a graph with vertex types.
func typedRefuses(s *job.Spec) []clash {
	const why = "it does not tell types and relations apart yet"
	return []clash{
		{!s.Sample.HasFanouts(), "sample.kind " + string(s.Sample.Kind), why, neighbour},
		{s.Locality.Favours(), "sample.locality", why, "sample.locality=1"},
		{s.Cache.Shared(), "cache.placement " + s.Cache.Placement,
			"rows that ranks share have one width",
			ownCache},
		{s.Cache.FromFiles(), "cache.source " + policy.SourceFiles, why, owners},
		{slices.Contains(s.Model.TypeFeatures, 0), "a vertex type without features",
			"models read feature rows of all types",
			"partition --features degree, which makes features from the graph, model.learned=64, " +
				"which learns them, or an import with features"},
	}
}

// learnedRefuses lists what cannot be combined with learned rows.
func learnedRefuses(s *job.Spec) []clash {
	const changes = "a row changes with every step that reads it"
	all := []clash{{s.Mode.Name != "" && s.Mode.Name != ModeData, "parallel.mode " + s.Mode.Name,
		"learned rows are fetched only for a rank's own minibatches", "parallel.mode=" + ModeData}}
	if s.Model.Schema.Typed() { // a typed graph may have features too
		return all
	}
	return append(all, []clash{
		{s.Cache.Policy != policy.None && s.Cache.Policy != "", "cache.policy " + s.Cache.Policy,
			changes, noCache},
		{s.Cache.FromFiles(), "cache.source " + policy.SourceFiles, changes, owners},
		{s.Sums && !s.TrySums, "exchange.sums on",
			"without vertex types layers read learned rows themselves", "exchange.sums=off"},
	}...)
}

// sparseRefuses lists what cannot be combined with sparse feature rows.
func sparseRefuses(s *job.Spec) []clash {
	const dense = ", or an import with --feature-type float32"
	return []clash{
		{changes(&s.Cache) || s.Cache.Policy == policy.Auto, "cache.policy " + s.Cache.Policy,
			"a row cannot take the place of another, because their sizes differ",
			policies((*policy.Policy).Static) + dense},
		{s.Cache.Shared(), "cache.placement " + s.Cache.Placement,
			"rows that ranks share have one size", ownCache},
		{s.Cache.FromFiles(), "cache.source " + policy.SourceFiles, "it reads rows of one size",
			owners + dense},
		{s.Sums && !s.TrySums, "exchange.sums on",
			"a sum has an entry in most columns, and is longer than the rows", "exchange.sums=off"},
		{s.Mode.Name != "" && s.Mode.Name != ModeData, "parallel.mode " + s.Mode.Name,
			"it shares rows of one size", "parallel.mode=" + ModeData + dense},
	}
}

// sharedRefuse lists what cannot be combined with minibatches that ranks share.
func sharedRefuse(s *job.Spec) []clash {
	return []clash{
		{s.Cache.FromFiles(), "cache.source " + policy.SourceFiles,
			"a rank reads only the rows of its own vertices", owners},
		{s.StreamPerPart, "sample.streams part",
			"each minibatch has seeds of several parts", "sample.streams=rank"},
		{s.Locality.Favours(), "sample.locality",
			"a minibatch that ranks share cannot favour the rows that one of them holds",
			"sample.locality=1"},
	}
}

func splitRefuses(s *job.Spec) []clash {
	return append(sharedRefuse(s), clash{s.Cache.Policy != policy.None,
		"cache.policy " + s.Cache.Policy, "a rank reads only the rows of its own vertices",
		noCache})
}

// hybridRefuses lists what hybrid parallelism cannot have.
func hybridRefuses(s *job.Spec) []clash {
	return append(sharedRefuse(s), []clash{
		{s.Cache.Shared(), "cache.placement " + s.Cache.Placement,
			"the ranks of a node already keep different rows", ownCache},
		{s.Model.Schema.Typed(), "a graph with vertex types",
			"ranks of a node pass on only rows of one size",
			"parallel.mode=" + ModeSplit},
	}...)
}

// pushPullRefuses lists what push-pull parallelism cannot have.
func pushPullRefuses(s *job.Spec) []clash {
	model, name, known := kindOf(s)
	return []clash{
		{s.Cache.Policy != policy.None, "cache.policy " + s.Cache.Policy, "no feature row travels",
			noCache},
		{s.Cache.FromFiles(), "cache.source " + policy.SourceFiles,
			"a rank has columns of all rows in memory", owners},
		{s.Locality.Favours(), "sample.locality", "no row is nearer than another",
			"sample.locality=1"},
		{known && !model.Linear(), name,
			"its input layer is not a sum over the columns of features",
			"model.kind sage with means, gcn, gin or mlp"},
		{s.Model.Schema.Typed(), "a graph with vertex types",
			"ranks divide the columns of one linear map, but each type has its own map",
			"parallel.mode=" + ModeSplit},
	}
}

// adding names the kinds whose input layer sums rows.
func adding(s *job.Spec) string {
	if s.Model.Schema.Typed() {
		return "model.kind=rgcn or sage"
	}
	return "model.kind=sage, gcn or gin"
}

// sumsRefuse lists what cannot be combined with sums from owners.
func sumsRefuse(s *job.Spec) []clash {
	model, name, known := kindOf(s)
	p := policy.Find(s.Cache.Policy)
	return []clash{
		{known && !model.Adds(), name, "its input layer reads rows themselves", adding(s)},
		{s.Model.Schema.Typed() && s.Sample.Estimates(), "sample.kind " + string(s.Sample.Kind),
			"rows of a type are mapped before they are added by weights", neighbour},
		{s.Mode.Sharing == sample.Together || s.Mode.Columns, "parallel.mode " + s.Mode.Name,
			"ranks fetch no feature rows from each other", "parallel.mode=" + ModeData},
		{s.Cache.FromFiles(), "cache.source " + policy.SourceFiles,
			"rows are then read from files, and none travels", owners},
		{s.Cache.Level && (s.Cache.Policy == policy.Auto ||
			p != nil && slices.Contains(p.Reads, "level")),
			"cache.level", "look-ahead then keeps rows that save sums, and fetches no rows early",
			"cache.level=false"},
	}
}

// nodesRefuse lists what cannot be combined with ranks of a node that fetch as one.
func nodesRefuse(s *job.Spec) []clash {
	shares := s.Mode.Sharing != sample.Alone
	why := "ranks that train a minibatch together already load each row only once"
	if s.Mode.Columns {
		why = "no feature row travels"
	}
	return []clash{
		{shares || s.Mode.Columns, "parallel.mode " + s.Mode.Name, why,
			"parallel.mode=" + ModeData},
		{s.Cache.FromFiles(), "cache.source " + policy.SourceFiles,
			"rows are then read from files, and none travels", owners},
	}
}

// edgeRowsRefuse lists what cannot be combined with features of edges.
func edgeRowsRefuse(s *job.Spec) []clash {
	return []clash{
		{s.Mode.Name != "" && s.Mode.Name != ModeData, "parallel.mode " + s.Mode.Name,
			"rows of edges are fetched only for a rank's own minibatches",
			"parallel.mode=" + ModeData},
	}
}

// changes reports whether a cache decides at every step which rows it keeps.
func changes(s *policy.Settings) bool {
	p := policy.Find(s.Policy)
	return p != nil && !p.Static()
}

// placementRefuses lists what cannot be combined with caches that ranks share.
func placementRefuses(s *job.Spec) []clash {
	group := s.Cache.Placement == policy.PlacementGroup
	static := policies(func(p *policy.Policy) bool { return p.Static() && !p.None() })
	why, cure := "ranks read each other's caches, which must not change", static
	if group {
		why, cure = "ranks divide a changing cache only if nodes fetch as one",
			"exchange.nodes=on, or "+static
	}
	return []clash{
		{s.Cache.Shared() && changes(&s.Cache) && !(group && (s.AsNodes || s.TryNodes)),
			"cache.policy " + s.Cache.Policy, why, cure},
		{group && s.Cache.Policy == policy.Auto, "cache.policy " + policy.Auto,
			"it compares only caches that each rank keeps for itself", static},
		{s.Cache.Placement == policy.PlacementParts && !s.Cache.FromFiles(),
			"cache.source " + policy.SourceOwners,
			"a rank reads the rows of its own parts in memory and needs no cache for them",
			"cache.source=" + policy.SourceFiles + " or cache.placement=" + policy.PlacementGroup},
	}
}

// filesRefuse lists what cannot be combined with rows that are read from the files of the parts.
func filesRefuse(s *job.Spec) []clash {
	return []clash{
		{changes(&s.Cache) || s.Cache.Policy == policy.Auto, "cache.policy " + s.Cache.Policy,
			"rows that are read from files are cached before the first step",
			policies(func(p *policy.Policy) bool { return p.Static() && !p.None() })},
		{s.Cache.HaloFraction > 0, "cache.halo_fraction",
			"all rows are remote and a rank has no halo", "cache.alpha"},
	}
}

// linksRefuse lists what cannot be combined with options of links.
func linksRefuse(s *job.Spec) (all []job.Refusal) {
	o := &s.Links
	all = append(all, refused("links.exclude", "true", "false", []clash{
		{o.Exclude && s.Locality.Favours(), "sample.locality",
			"it counts near neighbours among all edges, including those left out",
			"sample.locality=1"},
		{o.Exclude && s.Model.EdgeWeights, "model.edge_weights",
			"the sum of the weights of a vertex's edges includes the links, so a model could " +
				"tell which vertices they join", "model.edge_weights=false"},
		{o.Exclude && s.Mode.Sharing != sample.Alone && s.Model.GCNNorm == nn.GCNBoth &&
			s.Model.Kind == "gcn",
			"parallel.mode " + s.Mode.Name, "model.gcn_norm both divides by degrees, and a rank " +
				"does not know the degrees of other ranks' vertices without the links",
			"model.gcn_norm=right or parallel.mode=" + ModeData},
	})...)
	all = append(all, refused("links.filter", "true", "false", []clash{
		{o.Filter && s.Partitioned, "topology.kind partitioned",
			"a rank draws negatives before it asks others for edges, so it cannot tell which " +
				"negatives are edges of other ranks", "topology.kind=replicated"}})...)
	all = append(all, refused("links.corrupt", o.Corrupt, sample.CorruptTarget, []clash{
		{o.Corrupt == sample.CorruptPair && o.Negatives.Kind == sample.NegativesBatch,
			"links.negatives " + sample.NegativesBatch,
			"such negatives are targets of other links, and cannot replace sources",
			"links.negatives=uniform:16"}})...)
	valid := o.Graph == job.TrainValidGraph
	all = append(all, refused("links.graph", o.Graph, job.TrainGraph, []clash{
		{valid && s.Partitioned, "topology.kind partitioned",
			"links are added to the whole graph, which no rank has",
			"topology.kind=replicated"},
		{valid && s.Model.Schema.Typed(), "vertex types",
			"links are added only to graphs of one relation",
			"a graph without vertex types"},
		{valid && s.Model.EdgeWeights, "model.edge_weights", "validation links have no weights",
			"model.edge_weights=false"},
		{valid && s.Model.EdgeIn > 0, "model.edge_features", "validation links have no features",
			"model.edge_features=false"},
	})...)
	return all
}
