package train

import (
	"encoding/binary"
	"fmt"
	"math"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/nn"
)

// The metrics that choose the best epoch.
const (
	Accuracy = "accuracy"
	ROCAUC   = "roc_auc"
	MicroF1  = "micro_f1"
)

// metricName returns the metric of a task: two classes are judged by the ranking of their scores, because the share of
// the classes may differ between the splits.
func metricName(task string, classes int) string {
	switch {
	case task == nn.Multilabel:
		return MicroF1
	case classes == 2:
		return ROCAUC
	}
	return Accuracy
}

// score is what a set of vertices was predicted like.
type score struct {
	counts    nn.Counts
	undefined int64     // vertices some logit of which is no number
	logit     []float32 // ROC-AUC only: how much likelier class 1 is than class 0
	label     []int32
}

// add scores predictions: rows of logits and their labels (Multiclass) or targets (Multilabel). -1 is no label.
func (s *score) add(metric string, logits compute.Matrix, labels []int32, targets []uint8) {
	for i := range logits.Rows {
		z := logits.Row(i)
		if !nn.Finite(z) {
			s.undefined++
			continue
		}
		if metric == MicroF1 {
			s.counts.Add(multilabelCounts(z, targets[i*len(z):(i+1)*len(z)]))
			continue
		}
		if labels[i] < 0 {
			continue
		}
		if argmax(z) == labels[i] {
			s.counts.TruePositive++
		} else {
			s.counts.FalsePositive++
			s.counts.FalseNegative++
		}
		if metric == ROCAUC {
			s.logit = append(s.logit, z[1]-z[0])
			s.label = append(s.label, labels[i])
		}
	}
}

// argmax returns the first position of the largest element.
func argmax(z []float32) int32 {
	best := 0
	for c, x := range z {
		if x > z[best] {
			best = c
		}
	}
	return int32(best)
}

func multilabelCounts(z []float32, target []uint8) (c nn.Counts) {
	for j, x := range z {
		switch predicted, is := x > 0, target[j] != 0; {
		case predicted && is:
			c.TruePositive++
		case predicted:
			c.FalsePositive++
		case is:
			c.FalseNegative++
		}
	}
	return c
}

// quality is a score over all ranks: the metric that chooses epochs, and the share of right predictions.
type quality struct{ metric, accuracy float64 }

// quality sums the score over all ranks. Collective; every rank gets the same. The ROC-AUC needs every score at one
// place: 8 bytes a scored vertex. Predictions that are no numbers are ErrDiverged: the last update before them had a finite
// loss still.
func (s *score) quality(c comm.Comm, metric string) (quality, error) {
	all, err := comm.Allgather(c, s.counts.TruePositive, s.counts.FalsePositive, s.counts.FalseNegative, s.undefined)
	if err != nil {
		return quality{}, err
	}
	var sum nn.Counts
	undefined := int64(0)
	for i := 0; i < len(all); i += 4 {
		sum.Add(nn.Counts{TruePositive: all[i], FalsePositive: all[i+1], FalseNegative: all[i+2]})
		undefined += all[i+3]
	}
	if undefined > 0 {
		return quality{}, AgreedOn(c, fmt.Errorf("the predictions for %d vertices are not finite: %w; %s", undefined, ErrDiverged, divergedCure))
	}
	if metric == MicroF1 {
		return quality{sum.MicroF1(), sum.MicroF1()}, nil
	}
	q := quality{sum.Accuracy(), sum.Accuracy()}
	if metric == ROCAUC {
		if q.metric, err = s.rocAUC(c); err != nil {
			return quality{}, err
		}
	}
	return q, nil
}

func (s *score) rocAUC(c comm.Comm) (float64, error) {
	mine := make([]byte, 0, 8*len(s.logit))
	for i, z := range s.logit {
		mine = binary.LittleEndian.AppendUint32(mine, math.Float32bits(z))
		mine = binary.LittleEndian.AppendUint32(mine, uint32(s.label[i]))
	}
	parts, err := comm.AllgatherBytes(c, mine)
	if err != nil {
		return 0, err
	}
	var scores []float32
	var labels []int32
	for _, p := range parts {
		for ; len(p) > 0; p = p[8:] {
			scores = append(scores, math.Float32frombits(binary.LittleEndian.Uint32(p)))
			labels = append(labels, int32(binary.LittleEndian.Uint32(p[4:])))
		}
	}
	area, ok := nn.ROCAUC(scores, labels)
	if !ok {
		return 0, nil // one class only: no ranking to judge
	}
	return area, nil
}
