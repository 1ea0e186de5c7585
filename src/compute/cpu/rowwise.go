//go:build cgo

package cpu

import "halognn/src/compute"

// AddBias implements compute.Device.
func (d *Device) AddBias(y compute.Matrix, b []float32) {
	compute.CheckColumns("AddBias", y, len(b))
	d.run(y.Rows, task{run: addBiasTile, rowsPerTile: streamRows(y.Cols), y: y, bias: b})
}

func addBiasTile(d *Device, t *task, tile int) { d.kernels.addBias(t.rows(t.y, tile), t.bias) }

// ColumnSum implements compute.Device.
func (d *Device) ColumnSum(db []float32, dy compute.Matrix) {
	compute.CheckColumns("ColumnSum", dy, len(db))
	chunks := chunkCount(dy.Rows)
	d.reservePartials(chunks, dy.Cols)
	d.run(dy.Rows, task{run: columnSumTile, rowsPerTile: compute.ChunkRows, y: dy})
	d.addPartials(db, chunks, dy.Cols, 0)
}

func columnSumTile(d *Device, t *task, tile int) {
	d.kernels.columnSum(d.partial[tile*t.y.Cols:][:t.y.Cols], t.rows(t.y, tile))
}

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	if p == 0 {
		compute.CheckRows("ReLU", y)
		d.run(y.Rows, task{run: reluTile, rowsPerTile: streamRows(y.Cols), y: y})
		return
	}
	compute.CheckRows("ReLU", y, len(vertices))
	d.run(y.Rows, task{run: reluDropoutTile, rowsPerTile: streamRows(y.Cols), y: y, key: key, vertices: vertices,
		threshold: compute.DropoutThreshold(p), scale: compute.DropoutScale(p)})
}

func reluTile(d *Device, t *task, tile int) { d.kernels.relu(t.rows(t.y, tile)) }

func reluDropoutTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.y.Rows, tile)
	d.kernels.reluDropout(t.y.RowsAt(lo, hi), t.threshold, t.scale, t.key, t.vertices[lo:hi])
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	compute.CheckSame("ReLUBackward", dy, y)
	d.run(y.Rows, task{run: reluBackwardTile, rowsPerTile: streamRows(y.Cols), dx: dy, y: y, scale: compute.DropoutScale(p)})
}

func reluBackwardTile(d *Device, t *task, tile int) {
	d.kernels.reluBackward(t.rows(t.dx, tile), t.rows(t.y, tile), t.scale)
}

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32) {
	compute.CheckSame("LayerNorm", y, x)
	compute.CheckColumns("LayerNorm", x, len(gamma), len(beta))
	compute.CheckRows("LayerNorm", x, len(mean), len(rstd))
	d.run(x.Rows, task{run: layerNormTile, rowsPerTile: streamRows(x.Cols), y: y, x: x, gamma: gamma, beta: beta, mean: mean,
		rstd: rstd, eps: eps})
}

func layerNormTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.x.Rows, tile)
	d.kernels.layerNorm(t.y.RowsAt(lo, hi), t.x.RowsAt(lo, hi), t.gamma, t.beta, t.mean[lo:hi], t.rstd[lo:hi], t.eps)
}

// LayerNormBackward implements compute.Device.
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix, gamma, mean, rstd []float32) {
	compute.CheckSame("LayerNormBackward", dx, dy)
	compute.CheckSame("LayerNormBackward", dx, x)
	compute.CheckColumns("LayerNormBackward", x, len(gamma), len(dgamma), len(dbeta))
	compute.CheckRows("LayerNormBackward", x, len(mean), len(rstd))
	chunks := chunkCount(x.Rows)
	d.reservePartials(chunks, 2*x.Cols)
	d.run(x.Rows, task{run: layerNormBackwardTile, rowsPerTile: compute.ChunkRows, dx: dx, y: dy, x: x, gamma: gamma, mean: mean,
		rstd: rstd})
	d.addPartials(dgamma, chunks, 2*x.Cols, 0)
	d.addPartials(dbeta, chunks, 2*x.Cols, x.Cols)
}

func layerNormBackwardTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.x.Rows, tile)
	sums := d.partial[tile*2*t.x.Cols:][:2*t.x.Cols]
	d.kernels.layerNormBackward(t.dx.RowsAt(lo, hi), sums[:t.x.Cols], sums[t.x.Cols:], t.y.RowsAt(lo, hi), t.x.RowsAt(lo, hi),
		t.gamma, t.mean[lo:hi], t.rstd[lo:hi])
}
