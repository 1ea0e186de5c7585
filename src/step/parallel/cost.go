package parallel

import (
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
)

// The communication cost of a minibatch, for predictions. Each number here describes messages that
// other files of this package send. Tests compare the predictions with the counts of runs.

// The number of collectives of a minibatch. Each comment names the type that starts them, and what
// they carry.
const (
	fetchCollectives   = 2 // fetched: ids, rows
	nodeCollectives    = 2 // route, if nodes fetch as one: wants; rows passed on
	edgeCollectives    = 2 // withEdgeRows: places of edges, their rows
	learnedCollectives = 3 // withLearned and learning: ids, rows; gradients
	lateCollectives    = 1 // learning: learned rows, if steps under way change them
	askCollectives     = 2 // remoteDrawer, for a hop that asks: ids, neighbours
	// splitDrawer and shuffler, for a hop except the last: ids; rows, gradients
	crossingCollectives = 3
	layerCollectives    = 1 // splitDrawer, for a hop that is drawn as a whole: masses
	normCollectives     = 2 // shuffler, for a norm over all ranks' rows: moments, sums of backward
	ratedCollectives    = 2 // shuffler, for links: embeddings, their gradients
	relayCollectives    = 2 // relay, for the last hop: ids, rows
	columnCollectives   = 3 // columnRows and columnSums: hops; partial sums, their gradients
)

// CountBytes is the size, in bytes, of a count of vertices in a message.
const CountBytes = 8

// HopSizeBytes is the length, in bytes, of the message that announces the size of an input hop to
// the ranks that hold columns.
const HopSizeBytes = 8 * hopSize

// BetweenBytes returns the bytes that travel for a hidden row or partial sum of the given width:
// the row, and its gradient back.
func BetweenBytes(width int) float64 { return StoredBytes(width, compute.Float32s) }

// StoredBytes is BetweenBytes for rows that are stored in elements of the given type. Their
// gradients are float32.
func StoredBytes(width int, of compute.Elements) float64 { return float64((of.Size() + 4) * width) }

// NormBytes returns the bytes that a rank sends to each other rank for a batch norm of the given
// width over all ranks' rows. These are two moments and the number of rows, and two sums of the
// backward pass.
func NormBytes(width int) float64 { return 4 * float64(2*width+1+2*width) }

// Messages describe the minibatches of a rank, as input to a mode's cost.
type Messages struct {
	Hops   int // number of hops of a minibatch; 0 for a model that reads no neighbours
	Asking int // number of hops in which owners draw the in-neighbours of their vertices
	Group  int // number of ranks that train a minibatch together
	Norms  int // number of batch norms over the rows of all ranks
	Layers int // number of hops that are drawn as a whole
	// These are only set with ModeData. EdgeRows says that the model reads edge features. Learned
	// says that the model learns rows. LearnedSums says that owners add learned rows for other
	// ranks. UnderWay says that steps under way may change some of the learned rows.
	EdgeRows, Learned, LearnedSums, UnderWay bool
	Nodes                                    bool // ranks of a node fetch as one
	// Rated says that links are scored, so ranks that share minibatches exchange embeddings.
	Rated bool
}

// Collectives returns how many collectives a rank starts for a minibatch.
func (m *Mode) Collectives(of Messages) int { return m.collectives(of) }

func dataCollectives(of Messages) int {
	n := fetchCollectives + askCollectives*of.Asking
	if of.Nodes {
		n += nodeCollectives
	}
	if of.EdgeRows {
		n += edgeCollectives
		if of.Nodes {
			n += nodeCollectives
		}
	}
	if of.Learned {
		n += learnedCollectives
		if of.Nodes {
			n += nodeCollectives + fetchCollectives
		}
		if of.UnderWay && (!of.Nodes || of.LearnedSums) {
			n += lateCollectives
		}
		if of.UnderWay && of.Nodes {
			n += nodeCollectives + fetchCollectives
		}
	}
	return n
}

func splitCollectives(of Messages) int {
	if of.Group == 1 {
		return dataCollectives(of)
	}
	n := fetchCollectives + crossingCollectives*max(0, of.Hops-1) + normCollectives*of.Norms +
		layerCollectives*of.Layers
	if of.Rated {
		n += ratedCollectives
	}
	return n
}

func hybridCollectives(of Messages) int {
	if of.Group == 1 || of.Hops == 0 {
		return splitCollectives(of)
	}
	return splitCollectives(of) + relayCollectives + askCollectives*of.Asking
}

func pushPullCollectives(of Messages) int { return columnCollectives + askCollectives*of.Asking }

// HopWords returns the length, in words of 4 bytes, of an input hop in a message to ranks that hold
// columns: frontier, degrees, sources and, if the model weighs edges, weights.
func HopWords(needs nn.Needs, sources, destinations, edges int64) int64 {
	words := sources + destinations + edges
	if needs.Weights != nn.NoWeights {
		words += edges
	}
	return words
}
