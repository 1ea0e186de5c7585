// Package model groups the packages about models: tasks, with their labels, losses and metrics, and
// layers, with their parameters and optimisers. They compute on a compute.Device, and know no
// ranks, minibatch streams or caches. The package itself holds no code.
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
// layers. The simplest layer is in nn/sage.go, and nn/kinds.go has the table of all kinds.
// Parameters and gradients are flat arrays, laid out in nn/params.go. The learning rate is in
// nn/schedule.go. To learn about tasks, read task/task.go and task/multiclass.go. A metric is a row
// of task/metric.go or of the file of its task, and the task's Metrics names it.
package model
