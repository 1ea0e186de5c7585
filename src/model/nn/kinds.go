package nn

import (
	"math"
	"slices"
)

// Kind is a kind of model. To add one, write a row of the table kinds and a file with its Layer.
type Kind struct {
	Name, Brief     string
	ReadsNeighbours bool // whether the model reads more than the rows of its seeds
	HasHeads        bool // whether Config.Heads, HeadMerge and Slope apply
	inPlace         bool // layers write their output in several steps, in place, in float32
	WeighsEdges     bool // whether Config.EdgeWeights and Estimates apply
	MayTakeMaxima   bool // whether Config.Aggregation applies
	// Whether Config.EdgeIn applies: layers read features of edges if the graph has them.
	ReadsEdges bool
	NeedsEdges bool // whether edges must have features
	// Whether layers read edges relation by relation, even on a graph with only one relation.
	ByRelation bool

	layer func(s *store, c Config, l int) Layer // makes layer l, whose widths are c.Widths(l)
	// Makes layer l for a graph with vertex types; nil if the kind does not support vertex types.
	relational func(s *store, c Config, l int) Layer
}

var kinds = []Kind{
	{Name: "sage", Brief: "GraphSAGE with mean or max (`model.aggregation`)",
		ReadsNeighbours: true, WeighsEdges: true, MayTakeMaxima: true, layer: newSAGE,
		relational: newRelationSAGE},
	{Name: "gcn", Brief: "GCN: one weight for a vertex and its neighbours (`model.gcn_norm`)",
		ReadsNeighbours: true, WeighsEdges: true, layer: newGCN},
	{Name: "gin", Brief: "GIN: sums, with a learned weight of the vertex itself",
		ReadsNeighbours: true, WeighsEdges: true, layer: newGIN},
	{Name: "gat", Brief: "GAT: attention (`model.heads`)",
		ReadsNeighbours: true, HasHeads: true, layer: newGAT, relational: newRelationGAT},
	{Name: "gatv2", Brief: "GATv2: attention by vertex, neighbour and edge " +
		"features", ReadsNeighbours: true, HasHeads: true, ReadsEdges: true,
		layer: newGATv2, relational: newRelationGATv2},
	{Name: "gine", Brief: "GIN with features of edges",
		ReadsNeighbours: true, ReadsEdges: true, NeedsEdges: true, layer: newGINE},
	{Name: "rgcn", Brief: "R-GCN: a weight for each relation (`model.bases`), one for the vertex",
		ReadsNeighbours: true, WeighsEdges: true, inPlace: true, ByRelation: true, layer: newRGCN,
		relational: newRGCN},
	{Name: "mlp", Brief: "the same layers without neighbours, as a baseline", layer: newLinear},
}

// Kinds returns all kinds of models.
func Kinds() []Kind { return slices.Clone(kinds) }

// FindKind returns the kind called name, or nil.
func FindKind(name string) *Kind {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

// glorot declares a parameter whose initial values are uniform in +-sqrt(6/(a+b)), where a and b
// are the last two extents of its shape. This is the default of PyTorch Geometric for layers that
// multiply rows by weights before they aggregate them.
func glorot(name string, shape ...int) Param {
	n := len(shape)
	return Param{Name: name, Shape: shape,
		bound: float32(math.Sqrt(6 / float64(shape[n-1]+shape[n-2])))}
}
