// Package runs groups the packages about a run as its user sees it: they read its settings, train
// or infer, keep checkpoints, and write records and reports. The package itself holds no code.
//
//	config.yaml ──> session ──> train ─┬─ epoch: steps ──> evaluate ──> next epoch
//	                   │               ├─ checkpoint <──> RUN/checkpoints
//	                   │               └─ record ──> metrics.jsonl, summary.json ──> report
//	                   └──────> infer ──> predictions
//
// Its packages, each of which imports only those above it:
//
//	config      the table of settings
//	record      what a run writes of itself
//	watch       ends a run in which no rank is at work
//	report      run directories to tables, plots and one page
//	checkpoint  the state between two steps: kept, and brought back
//	session     what training and inference share: job, model, rows, pipe
//	blocks      the minibatches of a run as files
//	infer       passes over vertices, scores, predictions
//	train       the loop: epochs, steps, evaluation
//
// Begin with session/session.go, which opens all that a rank needs. Then read train/options.go,
// which has a picture of a training, and train/train.go and train/step.go, the loop itself. A
// setting is a row of config/table.go; a number in a record is a commented field of package record,
// a plot an entry of report/charts.go. Layer-wise inference is in infer/infer.go.
package runs
