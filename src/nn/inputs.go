package nn

// InputAxes returns the axis of each parameter of the input layer that has an entry for each column of
// the features, by its name: those of the parameters that are larger where there are more columns.
// Without types of vertices, and for c that Check accepts.
func (c Config) InputAxes() map[string]int {
	more, axes := c, map[string]int{}
	more.In++
	wider := more.newLayer(&store{}, 0).Params()
	for i, p := range c.newLayer(&store{}, 0).Params() {
		for axis, n := range p.Shape {
			if n != wider[i].Shape[axis] {
				axes[p.Name] = axis
			}
		}
	}
	return axes
}

// Permute makes entry i along an axis of a tensor that which was entry order[i].
func (t *Tensor) Permute(axis int, order []int) {
	inner := 1
	for _, n := range t.Shape[axis+1:] {
		inner *= n
	}
	data, block := make([]float32, len(t.Data)), len(order)*inner
	for begin := 0; begin+block <= len(data); begin += block {
		for i, from := range order {
			copy(data[begin+i*inner:][:inner], t.Data[begin+from*inner:][:inner])
		}
	}
	t.Data = data
}
