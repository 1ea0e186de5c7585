package compute

import "math"

// AdamCoefficients are the numbers of one Adam update, worked out in double precision and then rounded:
//
//	g += L2*p;  m = Beta1*m + OneMinusBeta1*g;  v = Beta2*v + OneMinusBeta2*g*g
//	p = Decay*p - Step * m / (sqrt(v)*Root + Eps)
type AdamCoefficients struct {
	L2, Decay                                  float32
	Beta1, OneMinusBeta1, Beta2, OneMinusBeta2 float32
	Step                                       float32 // LR over the bias correction of m
	Root                                       float32 // 1 over the square root of the bias correction of v
	Eps                                        float32
}

// Coefficients returns the numbers of the update that o describes.
// Source: Kingma and Ba, ICLR 2015, section 2; decoupled decay: Loshchilov and Hutter, ICLR 2019, Algorithm 2.
func (o AdamOptions) Coefficients() AdamCoefficients {
	t := float64(o.Step)
	c := AdamCoefficients{
		L2: float32(o.WeightDecay), Decay: 1,
		Beta1: float32(o.Beta1), OneMinusBeta1: float32(1 - o.Beta1),
		Beta2: float32(o.Beta2), OneMinusBeta2: float32(1 - o.Beta2),
		Step: float32(o.LR / (1 - math.Pow(o.Beta1, t))),
		Root: float32(1 / math.Sqrt(1-math.Pow(o.Beta2, t))),
		Eps:  float32(o.Eps),
	}
	if o.Decoupled {
		c.L2, c.Decay = 0, float32(1-o.LR*o.WeightDecay)
	}
	return c
}
