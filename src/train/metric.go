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

// chooseMetric returns the requested metric, or an error if it does not apply to the task.
func chooseMetric(asked, task string, classes int) (string, error) {
	switch {
	case asked == "" || asked == "auto":
		return metricName(task, classes), nil
	case (asked == MicroF1) != (task == nn.Multilabel):
		judged := "one class a vertex"
		if task == nn.Multilabel {
			judged = "several labels a vertex"
		}
		return "", fmt.Errorf("train.metric %s does not judge %s; use auto, or %s", asked, judged,
			metricName(task, classes))
	case asked == ROCAUC && classes != 2:
		return "", fmt.Errorf("train.metric %s is of two classes, and the graph has %d; use auto, or %s",
			asked, classes, Accuracy)
	}
	return asked, nil
}

// metricName returns the metric of a task: two classes are judged by the ranking of their scores,
// because the share of the classes may differ between the splits.
func metricName(task string, classes int) string {
	switch {
	case task == nn.Multilabel:
		return MicroF1
	case classes == 2:
		return ROCAUC
	}
	return Accuracy
}

// score counts how well a set of vertices was predicted.
type score struct {
	counts    nn.Counts
	truths              // of the vertices that were judged
	undefined int64     // vertices with a logit that is not finite
	shortfall float64   // sum over labelled vertices of how far the logits fall short of the truth
	confusion []int64   // [classes, classes] by truth and prediction; nil: not counted
	logit     []float32 // ROC-AUC only: how much likelier class 1 is than class 0
	label     []int32
}

// add scores predictions: rows of logits and their labels (Multiclass) or targets (Multilabel). -1
// is no label.
func (s *score) add(metric string, logits compute.Matrix, labels []int32, targets []uint8) {
	for i := range logits.Rows {
		z := logits.Row(i)
		if !nn.Finite(z) {
			s.undefined++
			continue
		}
		if metric == MicroF1 {
			target := targets[i*len(z) : (i+1)*len(z)]
			s.see(-1, target)
			s.counts.Add(multilabelCounts(z, target))
			s.shortfall += multilabelShortfall(z, target)
			continue
		}
		if !s.see(labels[i], nil) {
			continue
		}
		best := argmax(z)
		s.shortfall += float64(z[best]) - float64(z[labels[i]])
		if s.confusion != nil {
			s.confusion[int(labels[i])*len(z)+int(best)]++
		}
		if best == labels[i] {
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

// multilabelShortfall returns the mean over the classes of a logit's distance from 0 where it lies
// on the wrong side.
func multilabelShortfall(z []float32, target []uint8) (sum float64) {
	for j, x := range z {
		if (x > 0) != (target[j] != 0) {
			sum += math.Abs(float64(x))
		}
	}
	return sum / float64(len(z))
}

// quality is a score over all ranks: the metric that chooses epochs, the share of right
// predictions, and the mean shortfall, a lower bound of the mean loss that is at most log(classes)
// below it.
type quality struct {
	metric, accuracy Metric
	shortfall        float64
	judged           truths
}

// quality sums the score over all ranks. Collective; every rank gets the same. The ROC-AUC needs
// all scores on one rank: 8 bytes a scored vertex. Predictions that are not finite are ErrDiverged:
// the last update's loss was still finite, so no step has reported it.
func (s *score) quality(c comm.Comm, metric string) (quality, error) {
	all, err := comm.Allgather(c, s.counts.TruePositive, s.counts.FalsePositive,
		s.counts.FalseNegative, s.vertices, s.labelled, s.positive, s.undefined)
	if err != nil {
		return quality{}, err
	}
	var sum nn.Counts
	var judged truths
	undefined := int64(0)
	for ; len(all) > 0; all = all[7:] {
		sum.Add(nn.Counts{TruePositive: all[0], FalsePositive: all[1], FalseNegative: all[2]})
		judged.add(truths{vertices: all[3], labelled: all[4], positive: all[5]})
		undefined += all[6]
	}
	if undefined > 0 {
		return quality{}, comm.AgreedOn(c,
			fmt.Errorf("the predictions for %d vertices are not finite: %w; %s", undefined,
				ErrDiverged, divergedCure))
	}
	short, err := comm.Allgather(c, s.shortfall)
	if err != nil {
		return quality{}, err
	}
	q := quality{judged: judged}
	for _, x := range short {
		q.shortfall += x
	}
	q.shortfall /= float64(max(1, judged.labelled))
	right, _ := sum.Accuracy()
	if metric == MicroF1 {
		right, _ = sum.MicroF1()
	}
	q.accuracy = judged.metric(shareBeside(metric), right)
	q.metric = q.accuracy
	if metric == ROCAUC {
		area, err := s.rocAUC(c)
		if err != nil {
			return quality{}, err
		}
		q.metric = judged.metric(ROCAUC, area)
	}
	return q, nil
}

// rocAUC returns the area over all ranks; 0 where one class alone leaves it undefined. Collective.
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
	area, _ := nn.ROCAUC(scores, labels)
	return area, nil
}
