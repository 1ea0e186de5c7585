package dataset

import (
	"cmp"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// blockModel is a degree-corrected stochastic block model (Karrer and Newman, Physical Review E 83,
// 2011) whose blocks are communities on a ring:
//
//	class       2 2 2 2 0 0 0 0 0 1 1 0 0 0 2 2 2 ...     runs of communities, in random order
//	community   0 1 2 3 4 5 6 7 ...                       each some multiples of the degree in size
//	place       0.........N-1                             vertices by community; id[place] is the
//	                                                      vertex number
//
// Each vertex draws half of its edges, each edge in two steps. First it draws a community. With
// probability Homophily that is one of its own class: mostly its own community, or one near it
// among the communities of the class. Otherwise it is a community of another class, mostly near on
// the ring. Then it draws a vertex in that community, by weight. Because most edges join
// communities that are near on the ring, the graph has the locality of a real one. A partitioner
// finds cuts of a few per cent, because only edges to random communities cross a cut that follows
// the ring. Yet three hops reach most vertices.
//
// Degrees follow a power law. The weight of a vertex is its degree, but at most weightLimit. The
// larger the degree of a hub is, the more communities it draws from. Otherwise a hub would draw the
// same few vertices of its community over and over.
//
// A few vertices are strays: their class differs from that of their community. So no model can
// classify all vertices.
type blockModel struct {
	o           GenerateOptions
	begin       []int            // [K+1] first place of each community
	class       []int32          // [K] class of each community
	peers       [][]int32        // [Classes] communities of each class, in ring order
	rank        []int32          // [K] index of each community in peers of its class
	upTo        []float32        // [N] running sum of the weights within each community, by place
	communities []float64        // [K] running sum of the weights of whole communities
	id          []graph.VertexID // [N] vertex number at each place
	degree      powerLaw
	weightLimit float64
	// share of the vertices whose class is not that of their community, but drawn by class size
	strays float64
	// probability that an edge goes to a community of the same class as the community where it
	// begins; it is above Homophily, because strays have other classes
	inClass float64
}

const (
	degreeExponent = 2.5 // exponent of the density of degrees
	// ratio of the largest expected degree to the mean degree, as in ogbn-products
	degreeSpan      = 400
	communityDegree = 8 // ratio of the mean community size to the mean degree
	runLength       = 6 // mean number of neighbouring communities of the same class
	// ratio of the part of the ring over which the communities of a class spread to the size of the
	// class
	classReach = 4
	nearby     = 0.8 // share of the edges between classes that stay near on the ring
	sizeSpread = 0.5 // standard deviation of the logarithm of community sizes
	// share of the drawn edges that are repeats or loops and are dropped; the model draws more
	// edges to make up for it
	repeats = 0.055
)

func newBlockModel(o GenerateOptions) *blockModel {
	strays := (1 - o.Homophily) / 4
	m := &blockModel{o: o, strays: strays,
		inClass: math.Min(1, o.Homophily/((1-strays)*(1-strays))),
		degree: newPowerLaw(o.Degree*(1+repeats),
			math.Min(degreeSpan*o.Degree, float64(o.Vertices)/4))}
	m.layCommunities()
	m.weightLimit = communityDegree * o.Degree / 4 // a quarter of a mean community
	m.id = shuffledIDs(o.Vertices, o.Seed)
	m.upTo = mem.Make[float32](o.Vertices)
	total := make([]float64, len(m.class))
	mem.Pieces(len(m.class), 64, func(_, lo, hi int) {
		for k := lo; k < hi; k++ {
			sum := float32(0)
			for place := m.begin[k]; place < m.begin[k+1]; place++ {
				sum += float32(math.Min(m.degreeOf(place), m.weightLimit))
				m.upTo[place] = sum
			}
			total[k] = float64(sum)
		}
	})
	m.communities = runningSum(total)
	return m
}

func (m *blockModel) free() {
	mem.Free(m.upTo)
	mem.Free(m.id)
}

// layCommunities chooses the number of communities of each class, their sizes, and their places on
// the ring.
func (m *blockModel) layCommunities() {
	o, s := m.o, newStream(m.o.Seed, keyCommunity)
	// One vertex for each class is set aside, and the others are divided by the shares, so that no
	// class is empty.
	sizes := apportion(o.Vertices-o.Classes, o.classShares())
	type run struct {
		class int32
		sizes []int
		at    float64 // approximate position on the ring
	}
	var runs []run
	for c, size := range sizes {
		size++
		home, stretch := s.float(), math.Min(1, classReach*float64(size)/float64(o.Vertices))
		k := max(1, min(int(float64(size)/(communityDegree*o.Degree)+0.5), size))
		weights := make([]float64, k)
		for i := range weights {
			weights[i] = math.Exp(sizeSpread * float64(s.noise()))
		}
		parts := apportion(size-k, weights)
		for len(parts) > 0 {
			n := min(1+s.intn(2*runLength-1), len(parts))
			runs = append(runs, run{int32(c), parts[:n], home + stretch*s.float()})
			parts = parts[n:]
		}
	}
	slices.SortStableFunc(runs,
		func(a, b run) int { return cmp.Compare(math.Mod(a.at, 1), math.Mod(b.at, 1)) })
	m.peers = make([][]int32, o.Classes)
	m.begin = []int{0}
	for _, r := range runs {
		for _, size := range r.sizes {
			m.rank = append(m.rank, int32(len(m.peers[r.class])))
			m.peers[r.class] = append(m.peers[r.class], int32(len(m.class)))
			m.class = append(m.class, r.class)
			m.begin = append(m.begin, m.begin[len(m.begin)-1]+size+1)
		}
	}
}

// apportion divides n into whole numbers in proportion to the weights.
func apportion(n int, weights []float64) []int {
	upTo := runningSum(weights)
	parts, done := make([]int, len(weights)), 0
	for i, sum := range upTo {
		end := n
		if i < len(upTo)-1 {
			end = int(float64(n)*sum/upTo[len(upTo)-1] + 0.5)
		}
		parts[i], done = end-done, end
	}
	return parts
}

// degreeOf returns the expected degree of the vertex at a place.
func (m *blockModel) degreeOf(place int) float64 {
	s := newStream(m.o.Seed, keyDegree, uint64(place))
	return m.degree.quantile(s.float())
}

// fillClasses sets classes[v] for every vertex.
func (m *blockModel) fillClasses(classes []int32) {
	upTo := runningSum(m.o.classShares())
	mem.Pieces(len(m.class), 64, func(_, lo, hi int) {
		for k := lo; k < hi; k++ {
			for place := m.begin[k]; place < m.begin[k+1]; place++ {
				class := m.class[k]
				if s := newStream(m.o.Seed, keyClass, uint64(place)); s.float() < m.strays {
					class = int32(draw(&s, upTo))
				}
				classes[m.id[place]] = class
			}
		}
	})
}

// drawEdges draws the edges of each vertex from a random stream that is keyed by the vertex's
// place. It keeps only edges with an end among the given vertices.
func (m *blockModel) drawEdges(b *graph.Builder, vertices span) {
	own := make([]graph.Builder, workers())
	mem.Pieces(m.o.Vertices, 2048, func(worker, lo, hi int) {
		k, _ := slices.BinarySearch(m.begin, lo+1)
		k--
		for place := lo; place < hi; place++ {
			for place >= m.begin[k+1] {
				k++
			}
			s := newStream(m.o.Seed, keyEdge, uint64(place))
			degree := m.degreeOf(place)
			spread := math.Max(1, degree/m.weightLimit)
			for range int(degree/2 + s.float()) {
				j := m.pickCommunity(&s, k, spread)
				other := m.begin[j] + draw(&s, m.upTo[m.begin[j]:m.begin[j+1]])
				if vertices.has(m.id[other]) || vertices.has(m.id[place]) {
					own[worker].Add(m.id[other], m.id[place])
				}
			}
		}
	})
	for w := range own {
		b.Merge(&own[w])
	}
}

// pickCommunity draws the community of the second end of an edge, whose first end is in community
// k.
func (m *blockModel) pickCommunity(s *stream, k int, spread float64) int {
	x := s.float()
	if x < m.inClass {
		peers := m.peers[m.class[k]]
		return int(peers[wrap(int(m.rank[k])+step(s, spread), len(peers))])
	}
	if x < m.inClass+nearby*(1-m.inClass) {
		// in a long run of one class, or with one class only, there may be no other class near
		for range 8 {
			if j := wrap(k+step(s, spread*runLength), len(m.class)); m.class[j] != m.class[k] {
				return j
			}
		}
	}
	return draw(s, m.communities)
}

// step draws a distance along the ring, in either direction. It is at least d with probability
// (1+d/spread)^-2.
func step(s *stream, spread float64) int {
	x := s.next()
	u := (float64(x>>11) + 1) * 0x1p-53
	d := int(math.Min(spread*(1/math.Sqrt(u)-1), 1<<40))
	if x&1 == 0 {
		return -d
	}
	return d
}

// wrap returns i modulo n, in [0,n).
func wrap(i, n int) int {
	if i %= n; i < 0 {
		i += n
	}
	return i
}

// powerLaw is the distribution of expected degrees. The density of degree d is in proportion to
// d^-degreeExponent, for d between low and high.
type powerLaw struct{ low, high float64 }

// newPowerLaw returns the distribution with the given mean and largest degree.
func newPowerLaw(mean, high float64) powerLaw {
	low, up := 0.0, mean
	for range 60 { // bisection works, because the mean grows with low
		mid := (low + up) / 2
		if (powerLaw{mid, high}).mean() < mean {
			low = mid
		} else {
			up = mid
		}
	}
	return powerLaw{up, high}
}

func (p powerLaw) mean() float64 {
	const a = degreeExponent - 1
	return a / (a - 1) * (math.Pow(p.low, 1-a) - math.Pow(p.high, 1-a)) / (math.Pow(p.low,
		-a) - math.Pow(p.high, -a))
}

// quantile returns the degree d such that the share x of all vertices has a degree below d.
func (p powerLaw) quantile(x float64) float64 {
	const a = degreeExponent - 1
	lo, hi := math.Pow(p.low, -a), math.Pow(p.high, -a)
	return math.Pow(lo-x*(lo-hi), -1/a)
}
