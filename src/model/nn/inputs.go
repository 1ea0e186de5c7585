package nn

// InputAxes returns the parameters of the input layer whose shape depends on the number of feature
// columns. The result maps a parameter's name to the axis that has an entry for each column. It may
// be called only for graphs without vertex types, and only if Check accepts c.
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

// Permute reorders a tensor along an axis: the new entry i is the old entry order[i].
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
