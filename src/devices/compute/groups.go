package compute

import "fmt"

// Groups divide the rows of a product into groups of consecutive rows. Each group has its own
// weights: the weights of group g begin at element g*Stride.
type Groups struct {
	Ends   []int32 // [G] group g has the rows Ends[g-1] to Ends[g]-1; group 0 begins at row 0
	Stride int
}

// Rows returns the range [lo, hi) of the rows of group i.
func (g Groups) Rows(i int) (lo, hi int) {
	if i > 0 {
		lo = int(g.Ends[i-1])
	}
	return lo, int(g.Ends[i])
}

// Weights returns the weights of group i, a matrix [rows, cols].
func (g Groups) Weights(w []float32, i, rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, Data: w[i*g.Stride:][:rows*cols]}
}

// A GPU divides groups of up to LargeGroup rows into tiles of GroupTile rows. For the gradients of
// weights it first divides them into tiles of ChunkRows rows, because each tile takes memory for a
// sum as large as a group's weights.
const (
	LargeGroup = 16384
	GroupTile  = 128
)

// GroupTiles returns the number of tiles for the gradients of weights of groups with these ends. If
// only one or two groups are large enough for tiles, they have none, because a product for each
// takes no more launches.
func GroupTiles(ends []int32) (tiles int) {
	const few = 2
	groups := 0
	for i := range ends {
		lo, hi := Groups{Ends: ends}.Rows(i)
		if n := hi - lo; n >= GroupTile && n <= LargeGroup {
			tiles += n/ChunkRows + n%ChunkRows/GroupTile
			groups++
		}
	}
	if groups <= few {
		return 0
	}
	return tiles
}

// TileColumns returns a number of which the columns of all matrices must be a multiple if a GPU is
// to divide groups into tiles: tensor cores read 16 bytes at a time.
func (p Precision) TileColumns() int {
	switch p {
	case PrecisionTF32:
		return 4
	case PrecisionBF16:
		return 8
	}
	return 1
}

// GroupKernels are matrix products of groups of rows, where each group has its own weights. Graphs
// with many relations need them. One call computes the products of all groups, so that small groups
// do not take a call each. The factors x and dy may be of float32 or bfloat16.
type GroupKernels interface {
	// GroupMatMul sets y = x w_gᵀ in the rows of each group g. Shapes: y [R,O], x [R,F], w_g [O,F].
	GroupMatMul(y, x Matrix, w []float32, g Groups)
	// GroupMatMulInput sets dx = dy w_g in the rows of each group g. Shapes: dx [R,F], dy [R,O],
	// w_g [O,F].
	GroupMatMulInput(dx, dy Matrix, w []float32, g Groups)
	// GroupMatMulWeights sets dw_g = dyᵀ x, summed in chunks over the rows of each group g. If a
	// group has no rows, dw_g is zero. Shapes: dw_g [O,F], dy [R,O], x [R,F].
	GroupMatMulWeights(dw []float32, dy, x Matrix, g Groups)
	// GroupDense sets y = x w_gᵀ + b_g in the rows of each group g. The array b has the biases b_g
	// [O] of all groups, one after the other.
	GroupDense(y, x Matrix, w, b []float32, g Groups)
	// GroupDenseBackward is the gradient of GroupDense. It sets dw_g as GroupMatMulWeights does,
	// and db_g [O] to the sum of the group's rows of dy. The matrix dy must be of float32.
	GroupDenseBackward(dw, db []float32, dy, x Matrix, g Groups)
}

// CheckGroupMatMul checks the arguments of GroupMatMul.
func CheckGroupMatMul(y, x Matrix, w []float32, g Groups) Call {
	return checkGroups("GroupMatMul", y, y, x, w, g)
}

// CheckGroupMatMulInput checks the arguments of GroupMatMulInput.
func CheckGroupMatMulInput(dx, dy Matrix, w []float32, g Groups) Call {
	return checkGroups("GroupMatMulInput", dx, dy, dx, w, g)
}

// CheckGroupMatMulWeights checks the arguments of GroupMatMulWeights.
func CheckGroupMatMulWeights(dw []float32, dy, x Matrix, g Groups) Call {
	return checkGroups("GroupMatMulWeights", Matrix{}, dy, x, dw, g)
}

// CheckGroupDense checks the arguments of GroupDense.
func CheckGroupDense(y, x Matrix, w, b []float32, g Groups) Call {
	c := checkGroups("GroupDense", y, y, x, w, g)
	CheckLengths(c.Kernel, len(g.Ends)*y.Cols, len(b))
	c.Bytes += floatBytes * len(b)
	return c
}

// CheckGroupDenseBackward checks the arguments of GroupDenseBackward.
func CheckGroupDenseBackward(dw, db []float32, dy, x Matrix, g Groups) Call {
	c := checkGroups("GroupDenseBackward", dy, dy, x, dw, g)
	CheckLengths(c.Kernel, len(g.Ends)*dy.Cols, len(db))
	c.Bytes += floatBytes * len(db)
	return c
}

// checkGroups checks that y [R,O], x [R,F] and the weights [O,F] of each group fit. The matrix that
// the kernel writes (`written`) must be of float32.
func checkGroups(kernel string, written, y, x Matrix, w []float32, g Groups) Call {
	n, at := len(g.Ends), 0
	rises := true
	for _, end := range g.Ends {
		rises = rises && int(end) >= at
		at = int(end)
	}
	if !written.holds() || !y.stored() || !x.stored() || y.Rows != x.Rows || at != y.Rows ||
		!rises || g.Stride < y.Cols*x.Cols || n > 0 && len(w) < (n-1)*g.Stride+y.Cols*x.Cols {
		panic(fmt.Sprintf("compute: %s: matrices %v and %v do not fit %d groups that end at row "+
			"%d and have %d weights, %d for each group", kernel, y, x, n, at, len(w), g.Stride))
	}
	return Call{Kernel: kernel, Bytes: x.bytes() + y.bytes() + floatBytes*n*y.Cols*x.Cols,
		Flops: productFlops(y, x)}
}

// GroupMatMulInParts defines what GroupMatMul computes. It calls MatMul for each group.
func GroupMatMulInParts(p *Probe, k LinearKernels, y, x Matrix, w []float32, g Groups) {
	defer p.Start(CheckGroupMatMul(y, x, w, g)).Done()
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		k.MatMul(y.RowsAt(lo, hi), x.RowsAt(lo, hi), g.Weights(w, i, y.Cols, x.Cols), false)
	}
}

// GroupMatMulInputInParts defines what GroupMatMulInput computes. It calls MatMulInput for each
// group.
func GroupMatMulInputInParts(p *Probe, k LinearKernels, dx, dy Matrix, w []float32, g Groups) {
	defer p.Start(CheckGroupMatMulInput(dx, dy, w, g)).Done()
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		k.MatMulInput(dx.RowsAt(lo, hi), dy.RowsAt(lo, hi), g.Weights(w, i, dy.Cols, dx.Cols),
			false)
	}
}

// GroupMatMulWeightsInParts defines what GroupMatMulWeights computes. It calls MatMulWeights for
// each group.
func GroupMatMulWeightsInParts(p *Probe, k LinearKernels, dw []float32, dy, x Matrix, g Groups) {
	defer p.Start(CheckGroupMatMulWeights(dw, dy, x, g)).Done()
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		k.MatMulWeights(g.Weights(dw, i, dy.Cols, x.Cols), dy.RowsAt(lo, hi), x.RowsAt(lo, hi))
	}
}

// GroupDenseInParts defines what GroupDense computes. It calls kernels for the product and the bias
// of each group.
func GroupDenseInParts(p *Probe, k LinearKernels, y, x Matrix, w, b []float32, g Groups) {
	defer p.Start(CheckGroupDense(y, x, w, b, g)).Done()
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		k.MatMul(y.RowsAt(lo, hi), x.RowsAt(lo, hi), g.Weights(w, i, y.Cols, x.Cols), false)
		k.AddBias(y.RowsAt(lo, hi), b[i*y.Cols:][:y.Cols])
	}
}

// GroupDenseBackwardInParts defines what GroupDenseBackward computes. It calls kernels for each
// group.
func GroupDenseBackwardInParts(p *Probe, k LinearKernels, dw, db []float32, dy, x Matrix,
	g Groups) {
	defer p.Start(CheckGroupDenseBackward(dw, db, dy, x, g)).Done()
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		k.MatMulWeights(g.Weights(dw, i, dy.Cols, x.Cols), dy.RowsAt(lo, hi), x.RowsAt(lo, hi))
		k.ColumnSum(db[i*dy.Cols:][:dy.Cols], dy.RowsAt(lo, hi))
	}
}
