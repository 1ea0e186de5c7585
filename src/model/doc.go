// Package model is the wing of what is learned: the tasks, with their labels, losses and metrics,
// and the layers, with their parameters and optimisers. It computes by a compute.Device, and knows
// no ranks, minibatch streams or caches. It holds no code itself.
//
//	input rows ──> layer 0 ──> hidden rows ──> layer 1 ──> outputs ──> loss <── labels
//	                  │                           │                     │
//	               dW0, dX <──── hidden gradients ┴──── dW1 <───── gradient of outputs
//	                  └───────────> one flat array of gradients ──> optimiser
//
// Its packages, each of which imports only those above it:
//
//	task  the table of tasks: labels, losses, metrics, predictions
//	nn    layers, parameters, optimisers, schedules
//
// Begin with nn/nn.go, which has the configuration of a model, and nn/model.go, which runs its
// layers. nn/sage.go is the simplest layer, nn/kinds.go the table of all. nn/params.go lays
// parameters and gradients out in flat arrays, nn/schedule.go has the learning rate. Of tasks read
// task/task.go and task/multiclass.go; a metric is a row of task/metric.go or of its task's file,
// and is named in the task's Metrics.
package model
