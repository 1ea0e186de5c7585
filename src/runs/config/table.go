package config

import (
	"strings"

	"halognn/src/data/dataset"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Limits of keys. Larger values are mistakes that would exhaust the memory.
const (
	mostEpochs = 1e9 // fewer epochs than package access can count
	mostLayers = 64
	mostHidden = 1 << 16
	mostHeads  = 1 << 10
	mostDepth  = 1 << 16
	MaxThreads = 1 << 12
)

// layerVertices is the default of sample.layer_vertices.
const layerVertices = 8192

// free marks keys that a run may change at any time without affecting its numbers.
const free = MayChange | SameEpoch

// section holds the keys that are below one name in the file.
type section struct {
	name, doc string // the doc is paragraphs of Markdown
	keys      []*Key
}

// table binds every key to its field of c. To add a key, add a field to Config and a row here. A
// row has the name of the key below its section, the field with its default and limits, the traits,
// the meaning as a phrase, and further sentences.
func (c *Config) table() []section {
	all := []section{
		{name: "data", keys: []*Key{
			{"parts", path(&c.Data.Parts).mustBeGiven(), MayChange,
				"directory of `halognn partition --out`",
				"Ranks must divide the number of parts."},
			{"split", whole(&c.Data.Split, 0, 0).upTo(dataset.MaxSplits - 1), 0,
				"which of the parts' splits, from 0",
				"Parts are balanced by the first."},
			{"verify", oneOf(&c.Data.Verify, "hashes",
				word{"hashes",
					"each rank compares the hashes of its parts, rank 0 also those of shared " +
						"files"},
				word{"sizes",
					"existence, sizes and shapes only, for graphs that take long to read; an " +
						"altered file ends the job at an impossible value, or goes unnoticed"},
			), free,
				"what is verified of the parts at the start", ""},
		}},

		{name: "model", keys: []*Key{
			{"kind", oneOf(&c.Job.Model.Kind, "sage", modelKinds()...), 0,
				"the layers", "[Definitions](models.md)."},
			{"layers", whole(&c.Job.Model.Layers, 3, 1).upTo(mostLayers), 0,
				"number of layers", ""},
			{"hidden", whole(&c.Job.Model.Hidden, 256, 1).upTo(mostHidden), 0,
				"width of the hidden layers", ""},
			{"dropout", number(&c.Job.Model.Dropout, 0.5, atLeast(0).lessThan(1)), 0,
				"probability of dropping a hidden activation; 0: none",
				"The same on any ranks and threads."},
			{"norm", oneOf(&c.Job.Model.Norm, "none",
				word{"none", ""},
				word{"layer", "LayerNorm before each hidden activation"},
				word{"batch",
					"BatchNorm, in training by each stream's minibatch, later by running " +
						"statistics"},
			), 0,
				"normalisation of the hidden layers", ""},
			{"activation", oneOf(&c.Job.Model.Activation, "relu",
				word{"relu", ""},
				word{"elu", "`exp(x) - 1` below 0"},
			), 0,
				"activation of the hidden layers", ""},
			{"residual", boolean(&c.Job.Model.Residual, false), 0,
				"add a vertex's own hidden row before the activation",
				"Not in the first layer, nor in one that makes logits."},
			{"edge_weights", boolean(&c.Job.Model.EdgeWeights, true), 0,
				"use weights of edges, if there are some",
				"[How](models.md#weights-of-edges). `gat`, `gatv2` and `model.aggregation: max` " +
					"need `false` for such a graph."},
			{"edge_features", boolean(&c.Job.Model.EdgeFeatures, true), 0,
				"read features of edges, if there are some",
				"For `gatv2` and `gine`, which must, with `parallel.mode: data` on CPUs; other " +
					"models ignore them."},
			{"jumping", oneOf(&c.Job.Model.Jumping, "none",
				word{"none", "the last layer's rows"},
				word{"cat", "all layers' rows side by side, through a linear map"},
				word{"max", "their largest in each column, likewise"},
			), 0,
				"what the logits are made of",
				"With jumping knowledge the last layer is hidden too, and full inference keeps " +
					"all layers' rows."},
			{"aggregation", oneOf(&c.Job.Model.Aggregation, "mean",
				word{"mean", ""},
				word{"max", "the largest of each column"},
			), 0,
				"how `sage` aggregates neighbours", ""},
			{"gcn_norm", oneOf(&c.Job.Model.GCNNorm, "right",
				word{"right", "the mean over a vertex and its sampled neighbours"},
				word{"both",
					"symmetric normalisation by degrees of the whole graph, scaled to estimate " +
						"sums over all neighbours"},
			), 0,
				"how `gcn` weighs an edge", ""},
			{"heads", whole(&c.Job.Model.Heads, 2, 1).upTo(mostHeads), 0,
				"number of attention heads", "For " + kindsWithHeads() + "."},
			{"head_merge", oneOf(&c.Job.Model.HeadMerge, "concat",
				word{"concat", "side by side: `model.heads` divides `model.hidden`"},
				word{"mean", "their mean: each is `model.hidden` wide"},
			), 0,
				"how heads make a hidden row", "Those of the last layer are averaged. For " +
					kindsWithHeads() + "."},
			{"bases", whole(&c.Job.Model.Bases, 0, 0).upTo(graph.MaxRelations), 0,
				"basis matrices that `rgcn` combines into each relation's weights; 0: each has " +
					"its own",
				""},
			{"project", whole(&c.Job.Model.Project, 0, 0).upTo(mostHidden), 0,
				"width to which a linear map brings the rows of each vertex type; 0: " +
					"`model.hidden`",
				""},
			{"learned", whole(&c.Job.Model.Learned, 0, 0).upTo(mostHidden), 0,
				"columns of the row that each vertex without features learns; 0 refuses such " +
					"vertices",
				"By SparseAdam ([how](guide/typed.md#learned-rows))."},
			{"learned_scale", number(&c.Job.Learned.Scale, 0.01, atLeast(0)), 0,
				"learned rows begin uniform in [-scale, scale); 0: zeros",
				"An older run's config without it means 1."},
			{"learned_unread", oneOf(&c.Job.Learned.Unread, nn.UnreadZero,
				word{string(nn.UnreadZero), "zeros; a mean counts the vertex"},
				word{string(nn.UnreadKeep), "the row as it began"},
			), 0,
				"what evaluation and inference read of learned rows that training never changed",
				"An older run's config without it means `keep`."},
			{"slope", number(&c.Job.Model.Slope, 0.2, atLeast(0).upTo(1)), 0,
				"slope below 0 of the LeakyReLU of attention scores; 0: ReLU",
				"For " + kindsWithHeads() + "."},
		}},

		{name: "sample", keys: []*Key{
			{"kind", oneOf(&c.Job.Sample.Kind, sample.Neighbour, sampleKinds()...), 0,
				"how neighbours are drawn",
				"In training; elsewhere by `neighbour`. Kinds that weigh edges need `sage` with " +
					"means, `gcn` or `gin` ([when](guide/samplers.md))."},
			{"fanouts", fanouts(&c.Drawn.Fanouts, 15, 10, 5), 0,
				"neighbours per vertex and hop, seed hop first, one per layer",
				"`mlp` ignores it, and `ladies` in training."},
			{"relation_fanouts", path(&c.Job.RelationFanouts), 0,
				"fanouts of single relations: `writes=5,3 paper,cites,paper=10,5`; empty: all " +
					"relations have `sample.fanouts`",
				"Other relations have these too ([typed graphs](guide/typed.md)); " +
					"`sample.eval_fanouts` ignores it."},
			{"layer_vertices",
				whole(&c.Drawn.LayerVertices, layerVertices, 1).upTo(graph.MaxVertices), 0,
				"vertices that `ladies` draws for a layer, on average", "`labor` refuses it."},
			{"shared", boolean(&c.Job.Sample.Numbers.Shared, false), 0,
				"`poisson` draws, as `labor` does, by random numbers of vertices: neighbours " +
					"whose number is below their probability",
				""},
			{"share", &named[sample.Sharing]{
				bound[sample.Sharing]{&c.Job.Sample.Numbers.Share, sample.Alone},
				[]word{
					{"rank", "none"},
					{"node", "those of a node, which then want the same rows"},
					{"all",
						"all: a step's minibatches have the edges of one that large, on any ranks"},
				},
				[]sample.Sharing{sample.Alone, sample.InNodes, sample.Together},
			}, 0,
				"ranks that share the numbers of `labor` and `sample.shared`",
				"Shared noise does not average over ranks ([when](guide/samplers.md))."},
			{"dependency",
				whole(&c.Job.Sample.Numbers.Dependency, 1, 1).upTo(sample.MaxDependency), 0,
				"`labor`, `sample.shared`: steps for which a vertex keeps its number",
				"Consecutive minibatches then read mostly the same rows, which caches save."},
			{"layer_dependency", boolean(&c.Job.Sample.Numbers.Layers, false), 0,
				"`labor`, `sample.shared`: keep a vertex's number in all hops", ""},
			{"locality", number(&c.Job.Locality.Favour, 1, atLeast(1).upTo(1e6)), 0,
				"how many times likelier `poisson` and `ladies` draw vertices whose rows are at " +
					"hand: on the rank's node or in its static cache",
				"Draws then depend on cache, parts and nodes " +
					"([locality](guide/samplers.md#locality))."},
			{"locality_adapt", boolean(&c.Job.Locality.Adapts, false), 0,
				"adapt the factor to loading's share of each epoch, from 1 up to `sample.locality`",
				"By counts and the rates below: equal runs adapt alike. The cache must not " +
					"change."},
			{"locality_lower", number(&c.Job.Locality.Lower, 0.15, atLeast(0).upTo(1)), 0,
				"`sample.locality_adapt`: share of loading below which the factor goes half of " +
					"the way back",
				""},
			{"locality_upper", number(&c.Job.Locality.Upper, 0.2, atLeast(0).upTo(1)), 0,
				"`sample.locality_adapt`: share above which the factor doubles; between the two " +
					"it stays for good",
				""},
			{"locality_link", number(&c.Job.Locality.Link, 125e6, moreThan(0)), 0,
				"`sample.locality_adapt`: bytes/s at which a rank gets rows that are not at hand",
				""},
			{"locality_edges", number(&c.Job.Locality.Edges, 1e7, moreThan(0)), 0,
				"`sample.locality_adapt`: sampled edges/s that a rank draws and trains",
				"In `summary.json`: `computed_edges` / ranks / seconds of `sample`, `forward`, " +
					"`backward`, `update`."},
			{"locality_vertices",
				whole(&c.Job.Locality.Vertices, 8192, 1).upTo(graph.MaxVertices), 0,
				"`sample.locality`: vertices of each layer but the input layer that are " +
					"likelier: those with most paths to rows at hand",
				""},
			{"on", oneOf(&c.Job.DrawOn, parallel.DrawHost,
				word{parallel.DrawHost, "the CPUs"},
				word{parallel.DrawDevice, "the GPU, which then holds the topology, or an error"},
				word{parallel.DrawAuto,
					"`device` where that can be: with `cuda`, `topology.kind: replicated` and a " +
						"topology (24 bytes a vertex, 4 an edge) of at most half the device " +
						"memory that the model leaves"},
			), free,
				"where minibatches are drawn ([when](gpu.md#minibatches))",
				"Minibatches of a GPU have no `blocks_digest`."},
			{"eval_fanouts", fanouts(&c.Drawn.EvalFanouts), SameEpoch,
				"fanouts of sampled validation (`train.eval_mode: sampled`) and `halognn infer " +
					"--mode sampled`",
				"Empty: `sample.fanouts`. In training they change only which epoch is best."},
			{"batch", whole(&c.Job.Batch, 1024, 1).upTo(sample.MaxBatch), 0,
				"seeds of a minibatch", ""},
			{"batch_scope", either(&c.Job.GlobalBatch,
				word{"rank", "the seeds of each stream"},
				word{"global",
					"the seeds of all streams: a scaling study trains alike on any ranks"},
			), 0,
				"what `sample.batch` counts", ""},
			{"seeds", either(&c.Job.GlobalSeeds,
				word{"local", "from its own parts"},
				word{"global", "from the whole graph"},
			), 0,
				"where a stream draws its seeds from", ""},
			{"streams", either(&c.Job.StreamPerPart,
				word{"rank", "each rank"},
				word{"part",
					"each part: ranks train their parts' minibatches one by one and add " +
						"gradients: the same on any number of ranks"},
			), 0,
				"what has its own minibatches, seeds and random draws: a stream", ""},
		}},

		{name: "train", keys: []*Key{
			{"epochs", whole(&c.Job.Epochs, 10, 1).upTo(mostEpochs), free,
				"passes over the training seeds", "A resumed run: at least those begun."},
			{"lr", number(&c.Job.Schedule.Base, 0.003, moreThan(0)), 0,
				"learning rate", ""},
			{"learned_lr", number(&c.Job.Learned.LR, 0.01, moreThan(0)), 0,
				"learning rate of learned rows (`model.learned`)", "`train.schedule` changes it " +
					"too."},
			{"learned_decay", number(&c.Job.Learned.Decay, 0, atLeast(0)), 0,
				"decoupled weight decay of learned rows; 0: none",
				"A step decays only rows that it reads."},
			{"optimizer", oneOf(&c.Job.Optimizer.Kind, "adam",
				word{"adam", ""},
				word{"adamw", "Adam with decoupled weight decay"},
				word{"sgd", ""},
			), 0,
				"optimizer", ""},
			{"momentum", number(&c.Job.Optimizer.Momentum, 0.9, atLeast(0).lessThan(1)), 0,
				"momentum; 0: none", "For `sgd`."},
			{"weight_decay", number(&c.Job.Optimizer.WeightDecay, 0, atLeast(0)), 0,
				"weight decay; 0: none",
				"`adam` and `sgd` add it to the gradient, `adamw` applies it to the weights."},
			{"schedule", oneOf(&c.Job.Schedule.Kind, "constant",
				word{"constant", ""},
				word{"cosine", "falls to 0 at the end of the run"},
				word{"step", "drops every `train.step_epochs`"},
			), 0,
				"how the learning rate changes", ""},
			{"warmup_steps", whole(&c.Job.Schedule.Warmup, 0, 0), 0,
				"steps of a linear rise of the learning rate from 0; 0: none", ""},
			{"step_epochs", whole(&c.Job.StepEpochs, 10, 1).upTo(mostEpochs), 0,
				"schedule `step`: epochs between two drops of the learning rate", ""},
			{"step_factor", number(&c.Job.Schedule.Gamma, 0.5, moreThan(0).upTo(1)), 0,
				"schedule `step`: factor of a drop", ""},
			{"seed", whole(&c.Job.Seed, 1, 0), 0,
				"seed of all random streams", "Equal seeds give equal runs."},
			{"eval_every", whole(&c.Training.EvalEvery, 1, 0), SameEpoch,
				"epochs between two validations; 0: after the last epoch only", ""},
			{"eval_mode", either(&c.Training.EvalFull,
				word{"sampled", "minibatches by `sample.eval_fanouts`, in the training pipeline"},
				word{"full", "layer by layer with all neighbours"},
			), SameEpoch,
				"how the validation metric is computed", "The test always has all neighbours."},
			{"metric", oneOf(&c.Training.Metric, "auto", metricWords()...), SameEpoch,
				"what judges validation and test, and chooses the best epoch",
				""},
			{"class_weights", weights(&c.Training.Loss), 0,
				"factors of the classes' losses: `none`, `balanced` (training seeds / classes / " +
					"seeds of the class), or numbers",
				"For one class a vertex. The loss is divided by seeds, not weights, on the host, " +
					"as with `train.label_smoothing`."},
			{"label_smoothing", number(&c.Training.Loss.Smoothing, 0, atLeast(0).lessThan(1)), 0,
				"share of the target that all classes get alike; 0: none",
				"For one class a vertex."},
			{"loss", oneOf(&c.Training.Loss.Loss, task.LossAuto,
				word{task.LossAuto, "the task's loss; for regression `mse`"},
				word{task.LossSquared, "the squared error"},
				word{task.LossAbsolute, "the absolute error"},
				word{task.LossHuber, "squared up to 1, then absolute"},
			), 0, "the loss of regression",
				"In standard deviations of the training targets; computed on the host."},
			{"patience", whole(&c.Training.Patience, 0, 0), SameEpoch,
				"validations without improvement after which training stops; 0: never",
				"Refused where validation gives the metric no value."},
			{"allreduce", &named[parallel.SumMode]{
				bound[parallel.SumMode]{&c.Job.Sum, parallel.SumAuto},
				[]word{
					{"auto",
						"`reproducible` up to 64 ranks, and with `train.gradient_dtype: bf16`; " +
							"else `mpi`"},
					{"reproducible",
						"slices are added in rank order: the same bits on every MPI"},
					{"mpi", "MPI_Iallreduce"},
				},
				[]parallel.SumMode{parallel.SumAuto, parallel.SumReproducible, parallel.SumFast},
			}, 0,
				"how gradients are added over ranks", ""},
			{"gradient_dtype", either(&c.Job.HalfGradient,
				word{"float32", ""},
				word{"bf16",
					"half the bytes: ranks round their gradients, and the float32 sum in rank " +
						"order, at any number of ranks"},
			), 0,
				"type of weight gradients between ranks",
				"[How](design/34-gradients-in-bf16.md). One rank alone rounds nothing; with GPUs " +
					"the hosts add `bf16`. Not of learned and hidden rows."},
		}},

		{name: "links", doc: linksDoc, keys: []*Key{
			{"negatives", &negatives{bound[sample.Negatives]{&c.Job.Links.Negatives,
				sample.Negatives{Kind: sample.NegativesUniform, Count: 16}}}, 0,
				"negatives of a training link, by key: `uniform:k`, k vertices of the graph for " +
					"each; `joint:k`, the same k for k consecutive links; `local:k`, k of the " +
					"stream's own parts; `batch`, the targets of the other links",
				""},
			{"corrupt", oneOf(&c.Job.Links.Corrupt, sample.CorruptTarget,
				word{sample.CorruptTarget, ""}, word{sample.CorruptSource, ""},
				word{sample.CorruptBoth, "source and target in turn"},
				word{sample.CorruptPair, "source and target at once"}), 0,
				"the end of a link that a negative replaces", ""},
			{"filter", boolean(&c.Job.Links.Filter, false), 0,
				"redraw negatives that are edges of the graph", ""},
			{"exclude", boolean(&c.Job.Links.Exclude, true), 0,
				"draw neighbours without a minibatch's links and their reverses",
				"With `false` the model sees in training what it is to predict."},
			{"score", oneOf(&c.Job.Links.Score, task.ScoreAuto,
				word{task.ScoreAuto, "`dot`, or `mlp` where links have labels"},
				word{task.Dot, "inner product of the embeddings"},
				word{task.Cosine, "that of embeddings of length 1"},
				word{task.DistMult, "inner product with learned weights of columns"},
				word{task.MLP,
					"one hidden layer on the columnwise product of embeddings"}), 0,
				"how a link is rated", ""},
			{"loss", oneOf(&c.Job.Links.Loss, task.Contrastive,
				word{task.Contrastive, "softmax cross-entropy of a link among its negatives"},
				word{task.CrossEntropy, "binary, the mean over a link and its negatives"}), 0,
				"the loss of links", "Divided by the links of all ranks."},
			{"width", whole(&c.Job.Links.Width, 0, 0).upTo(mostHidden), 0,
				"width of embeddings; 0: `model.hidden`", ""},
			{"scale", number(&c.Job.Links.Scale, 1, moreThan(0).upTo(1e6)), 0,
				"factor of scores in the loss", "For `cosine`, whose scores are at most 1."},
			{"eval_negatives",
				&countOrAll{whole(&c.Job.Links.Judged, 100, 1).upTo(graph.MaxVertices)}, SameEpoch,
				"negatives among which validation and test rank a link's target, keyed by the " +
					"link; or `all`",
				"Vertices linked from the source are left out."},
			{"graph", oneOf(&c.Job.Links.Graph, job.TrainGraph,
				word{job.TrainGraph, "training links, and edges that are no links"},
				word{job.TrainValidGraph,
					"validation links too: embeddings are computed again"}), SameEpoch,
				"what passes messages when test links are judged", ""},
			{"eval_file", path(&c.Job.Links.JudgedFile), SameEpoch,
				"file with these vertices instead: a line of source, target and the others for " +
					"each validation and test link, by source ids; or a .npy of integers; empty: " +
					"drawn",
				""},
		}},

		{name: "exchange", keys: []*Key{
			{"sums", oneOf(&c.Sums, SumsOff,
				word{SumsOff, "rows alone travel"},
				word{SumsOn,
					"owners add a vertex's neighbours in one part and send the sum, where that " +
						"takes fewer bytes ([how](design/26-sums.md)); with vertex types learned " +
						"rows too (`rgcn`, `sage`)"},
				word{SumsAuto,
					"`on` if possible and, by some minibatches at the start, faster; " +
						"`summary.json` says why"},
			), MayChange,
				"whether owners send sums of rows where the input layer needs only these",
				"`on` needs `sage`, `gcn`, `gin` or `rgcn`."},
			{"nodes", oneOf(&c.Nodes, SumsOff,
				word{SumsOff, "each rank asks for itself"},
				word{SumsOn,
					"one of the ranks that lack a row asks once a step and passes it on " +
						"([how](design/35-nodes.md))"},
				word{SumsAuto,
					"`on` if possible and faster for some minibatches at the start, without " +
						"cache, sums and pipeline; `summary.json` says why. `infer`, and " +
						"evaluation in training, take `off`"},
			), MayChange,
				"whether ranks of a node fetch rows of other nodes as one",
				"A row that several ranks want in one step crosses the network once; but a " +
					"node's ranks wait for each other twice more for each minibatch: take a " +
					"`pipeline.depth` of 4. No effect with one rank a node."},
			{"window", whole(&c.Job.Window, 0, 0), MayChange,
				"bytes of rows that a rank has under way at a time; 0: no limit",
				"Where gradients wait behind rows: what a link carries in 30 ms (750000 at 200 " +
					"Mbit/s), with a `pipeline.depth` of 4."},
		}},

		{name: "cache", doc: cacheDoc, keys: []*Key{
			{"policy", oneOf(&c.Job.Cache.Policy, policy.Lookahead, policies()...), free,
				"which remote rows a rank keeps",
				"Otherwise default: `vip` (`sim` with `sample.kind: ladies`) with " +
					"`cache.placement: group` or `parts`, `cache.source: files` or " +
					"`sample.locality`; `none` with `model.learned`."},
			{"alpha", number(&c.Job.Cache.Alpha, 0.1, atLeast(0)), free,
				"capacity: rows of a rank's cache / vertices of an average rank; 0: no cache, " +
					"unless `cache.halo_fraction` sets it",
				""},
			{"halo_fraction", number(&c.Job.Cache.HaloFraction, 0, atLeast(0).upTo(1)), free,
				"capacity as a fraction of the rank's 1-hop halo; 0: by `cache.alpha`", ""},
			{"halo_hops", whole(&c.Job.Cache.HaloHops, 0, 0).upTo(mostLayers), free,
				"`degree`, `paths`, `prefetch`: hops from own vertices within which others are " +
					"kept; 0: the number of layers",
				""},
			{"gamma", number(&c.Job.Cache.Gamma, 0.995, moreThan(0).upTo(1)), free,
				"`prefetch`: decay of a row's score in a step that does not use it",
				"1 evicts none: rounds only fill empty slots."},
			{"delta", whole(&c.Job.Cache.Delta, 32, 1), free,
				"`prefetch`: a rank's minibatches between two eviction rounds",
				""},
			{"leave", oneOf(&c.Job.Cache.Leave, policy.LeaveUnused,
				word{policy.LeaveScore,
					"those whose score has decayed to `cache.gamma` to the power of " +
						"`cache.delta`, as in MassiveGNN"},
				word{policy.LeaveUnused, "those not read since the last round"},
			), free,
				"`prefetch`: rows that may leave in a round",
				"`unused` fetches [fewer rows](results/massivegnn.md#eviction-over-long-runs)."},
			{"evict", boolean(&c.Job.Cache.Evict, true), free,
				"`prefetch`: whether rows are exchanged; false keeps the first ones", ""},
			{"initial", oneOf(&c.Job.Cache.Initial, "degree",
				bare(policy.Initial())...,
			), free,
				"`prefetch`: ranking of the first rows", ""},
			{"scores", &named[cache.Layout]{
				bound[cache.Layout]{&c.Job.Cache.Layout, cache.LayoutAuto},
				[]word{
					{"auto", "the smaller one"},
					{"dense", "4 bytes a vertex"},
					{"compact", "8 bytes a candidate"},
				},
				[]cache.Layout{cache.LayoutAuto, cache.LayoutDense, cache.LayoutCompact},
			}, free,
				"`prefetch`: layout of the scoreboard", ""},
			{"window", whole(&c.Job.Cache.Window, 0, 0), free,
				"`lookahead`: minibatches known in advance, perhaps of later epochs",
				"0: as many as reuse asks for and memory allows (1 GiB for waiting minibatches)."},
			{"level", boolean(&c.Job.Cache.Level, false), free,
				"`lookahead`: fetch rows a step early where the next step has more to fetch",
				"Costs a few rows more."},
			{"placement", oneOf(&c.Job.Cache.Placement, policy.PlacementOwn,
				word{policy.PlacementOwn, "every rank keeps its best rows"},
				word{policy.PlacementGroup,
					"the ranks of a node divide rows and read each other's caches; `/dev/shm` " +
						"must have room for static ones, dynamic ones need `exchange.nodes: on` " +
						"or `auto`, whose `off` means `own`"},
				word{policy.PlacementParts,
					"as `group`, but each rank keeps rows of its own parts: a baseline, only " +
						"with `cache.source: files`"},
			), free,
				"where the rows of a cache lie", ""},
			{"peer_cost", costOrAuto(&c.Job.Cache.PeerCost), free,
				"static, placement `group`: cost of a peer's row / cost of a row that no cache " +
					"of the node holds",
				"0 spreads rows as widely as possible, 1 gives every rank the same; in between, " +
					"all keep the hottest and one rank each of the others. `auto` measures it at " +
					"the start; a number places rows alike in all runs."},
			{"source", oneOf(&c.Job.Cache.Source, policy.SourceOwners,
				word{policy.SourceOwners,
					"the ranks that own them; those of the same node are read in memory without " +
						"a cache"},
				word{policy.SourceFiles,
					"the feature files of all parts, mapped by every rank, for features larger " +
						"than a node's memory " +
						"([more](guide/tuning-the-cache.md#caches-of-a-node)): nothing is sent, " +
						"and caches may hold any row"},
			), free,
				"where rows that no cache holds come from", ""},
		}},

		{name: "pipeline", keys: []*Key{
			{"depth", whole(&c.Job.Depth, 2, 0).upTo(mostDepth), free,
				"minibatches prepared ahead of the one that trains; 0: none", ""},
			{"workers", whole(&c.Compute.Workers, 0, 0).upTo(MaxThreads), free,
				"goroutines that sample and gather",
				"0: one for each minibatch in preparation, up to the rank's CPUs (with `cuda` " +
					"all but two). Compute threads share these CPUs."},
		}},

		{name: "topology", keys: []*Key{
			{"kind", either(&c.Job.Partitioned,
				word{"replicated",
					"every rank sees the whole topology, one copy a node; features are " +
						"partitioned"},
				word{"partitioned",
					"every rank holds its own vertices' in-edges and asks owners of others for " +
						"draws: two collectives for each hop after the first " +
						"([when](guide/topology.md))"},
			), free,
				"where the topology lies", ""},
			{"load", oneOf(&c.Run.Load, "map",
				word{"map", "through the page cache"},
				word{"copy", "once per node into shared memory, where page faults are slow"},
			), free,
				"how the topology is read", ""},
		}},

		{name: "parallel", keys: []*Key{
			{"mode", modeNames(&c.Job.Mode), 0,
				"how ranks share a step",
				"`split` and `hybrid`: minibatches have `sample.batch` seeds for each rank that " +
					"shares them; `pipeline.depth` defaults to 4. `split` and `push-pull`: " +
					"`cache.policy` defaults to `none`."},
		}},

		{name: "compute", keys: []*Key{
			{"device", oneOf(&c.Compute.Device, "cpu",
				word{"cpu", "oneDNN or OpenBLAS, and SIMD kernels"},
				word{"cuda", "a GPU for each rank, by `libhalognn_cuda.so` (`make cuda`)"},
				word{"ref", "plain Go, to read and to debug"},
			), SameEpoch,
				"the device that computes", ""},
			{"threads", whole(&c.Compute.Threads, 0, 0).upTo(MaxThreads), free,
				"compute threads of a rank",
				"0: all CPUs that the launcher bound the rank to, divided where ranks share " +
					"them. Not for `cuda`."},
			{"gpu_rows", share(&c.Compute.GPU.Rows), free,
				"`cuda`: how many rows of the own parts, hottest first, lie in device memory; 0: " +
					"none",
				"`auto`: as many as fit half of what the model leaves."},
			{"gpu_reads", oneOf(&c.Compute.GPU.Reads, residence.ReadsAuto,
				word{residence.ReadsAuto, "the faster one, measured at the start"},
				word{residence.ReadsCopy, "the host gathers them for one copy"},
				word{residence.ReadsMapped, "the device reads them in place, from pinned pages"},
			), free,
				"`cuda`: how this rank's other rows reach the device " +
					"([gpu.md](gpu.md#feature-rows))",
				""},
			{"gradients", oneOf(&c.Compute.Gradients, parallel.TransportAuto,
				word{string(parallel.TransportAuto), "the first of the others that works"},
				word{string(parallel.TransportNCCL), "on the GPUs, by NCCL"},
				word{string(parallel.TransportMPI), "on the GPUs, by an MPI that takes device " +
					"memory"},
				word{string(parallel.TransportStaged), "on the hosts, through pinned memory"},
			), free,
				"`cuda`: how gradients are added over ranks ([gpu.md](gpu.md#gradients))",
				"Sums are the same, but with `train.allreduce: mpi` NCCL adds in an order of its " +
					"own."},
			{"shuffles", oneOf(&c.Compute.Shuffles, parallel.ShuffleAuto,
				word{string(parallel.ShuffleAuto), "`direct` where gradients go between GPUs, " +
					"else `staged`"},
				word{string(parallel.ShuffleDirect), "between GPUs, as gradients, in one queue " +
					"with these"},
				word{string(parallel.ShuffleStaged), "between the hosts, through pinned memory"},
			), free,
				"`cuda`, where ranks share minibatches or hold columns: how rows between layers " +
					"travel",
				""},
			{"gemm", oneOf(&c.Compute.GEMM, "auto",
				word{"auto",
					"what `HALOGNN_GEMM` names, else oneDNN if it can be loaded (on x86-64), " +
						"else OpenBLAS"},
				word{"onednn", "oneDNN 2 or 3 (`libdnnl.so` or `HALOGNN_ONEDNN_LIB`)"},
				word{"openblas", "the linked BLAS"},
				word{"go", "gonum's plain Go, to compare with"},
			), SameEpoch,
				"`cpu`: the library of matrix products",
				"Last bits differ between libraries; `device` in `summary.json` names the one " +
					"used."},
			{"precision", oneOf(&c.Compute.Precision, "float32",
				word{"float32", ""},
				word{"bf16",
					"factors are rounded to bfloat16 (nearest, ties to even), and rows that " +
						"layers read stored so; sums, weights, optimizer state and all else stay " +
						"float32"},
				word{"tf32", "likewise with TF32, whose significand has 11 bits, not 8; a GPU's " +
					"tensor cores may cut the rest off"},
			), SameEpoch,
				"precision of the factors of matrix products",
				"`cuda` takes tensor cores. On `cpu` bf16 is faster with AMD's AVX512-BF16, and " +
					"with AMX and oneDNN; elsewhere float32 multiplies the rounded factors, no " +
					"faster."},
			{"simd", oneOf(&c.Compute.SIMD, "auto",
				word{"auto", "the CPU's best"},
				word{"scalar", ""}, word{"avx2", ""}, word{"avx512", ""},
			), SameEpoch,
				"vector instructions of the kernels",
				"Last bits may differ; `summary.json` has the level."},
		}},

		{name: "checkpoint", doc: checkpointDoc, keys: []*Key{
			{"every_steps", whole(&c.Saves.EverySteps, 0, 0), free,
				"steps between two saves; 0: not by steps", ""},
			{"every_minutes", number(&c.Saves.EveryMinutes, 5, atLeast(0)), free,
				"minutes between two saves, by rank 0's clock; 0: not by time",
				"At least 200 times the last save: saves cost 0.5 % of the time at most."},
			{"keep", whole(&c.Saves.Keep, 3, 1), free | NoResult,
				"newest checkpoints that are kept", ""},
		}},

		{name: "run", keys: []*Key{
			{"dir", path(&c.Run.Dir).mustBeGiven(), free | NoResult,
				"directory of the results",
				"It must not hold another run."},
			{"ranks_per_node", whole(&c.Run.RanksPerNode, 0, 0), MayChange,
				"ranks of a pretended node, to measure on one machine what would cross a " +
					"network; 0: nodes as launched",
				""},
			{"stage_dir", path(&c.Run.StageDir), free,
				"node-local directory to which topology and parts are copied at the start, once " +
					"per node; empty: not copied",
				"Copies stay; later runs verify them (`data.verify`) and renew damaged ones. A " +
					"missing directory is made, for all users where its parent is. A run that " +
					"cannot begin removes its own copies."},
			{"scratch_dir", path(&c.Run.ScratchDir), free | NoResult,
				"node-local directory for the hidden rows of inference with all neighbours; " +
					"empty: memory",
				"Holds two layers of `4 * vertices * model.hidden` bytes or less " +
					"([how](guide/predict.md#hidden-rows-in-files)). `gat` and `gatv2` are slow " +
					"if one exceeds half of the memory free for files."},
			{"progress", oneOf(&c.Run.Progress, "auto",
				word{"auto",
					"a bar if standard error is a terminal, else lines"},
				word{"bar", ""}, word{"lines", ""},
			), free | NoResult,
				"how steps, loss and time left are shown: a line every 5 s, or beside a bar",
				"Under most launchers ask for `bar`."},
			{"stall_seconds", number(&c.Run.StallSeconds, 60, atLeast(0).upTo(1e6)),
				free | NoResult,
				"seconds without progress on any rank after which the job ends; 0: never",
				"[How](faults.md#the-watchdog)."},
		}},
	}
	for _, s := range all {
		for _, k := range s.keys {
			k.Name = s.name + "." + k.Name
		}
	}
	return all
}

// The words of exchange.sums and exchange.nodes.
const (
	SumsOff  = "off"
	SumsOn   = "on"
	SumsAuto = "auto"
)

// bare returns words that need no explanation.
func bare(names []string) (words []word) {
	for _, name := range names {
		words = append(words, word{name, ""})
	}
	return words
}

// policies are the words of cache.policy: the table of package policy, and auto.
func policies() (words []word) {
	for _, name := range policy.Names(policy.Trainable) {
		words = append(words, word{name, policy.Find(name).Doc})
	}
	return append(words, word{policy.Auto,
		"the fastest of `none`, `vip` (`sim` with `sample.kind: ladies`), `prefetch` (as set) " +
			"and `lookahead`: those that transfer fewest rows are tried in the first epochs, at " +
			"most a third of all; within 2 % fewest rows decide. A resumed run keeps the choice. " +
			"`cache.chosen` of `summary.json` says why"})
}

const cacheDoc = "A cache keeps copies of remote rows. A *static* one is filled before the first " +
	"step\nwith the rows that a ranking puts first, ties by out-degree, then id; a *dynamic* one " +
	"decides at\nevery step which fetched rows stay, and serves no evaluation or inference. No " +
	"policy changes a\nnumber of the training, except with `sample.locality`. If all ranks are " +
	"on one node there\nis no cache, unless `cache.source` is `files`."

const linksDoc = "Only for tasks of [links](guide/links.md). A minibatch has `sample.batch` " +
	"links,\nwhose ends and negatives are its seeds. Links with labels use only `exclude`, " +
	"`score`, `width`\nand `graph`."

const checkpointDoc = `[How a run goes on](checkpoints.md).`

// metricWords are the words of train.metric.
func metricWords() []word {
	words := []word{{"auto", "`roc_auc` with two classes, `micro_f1` with several labels a " +
		"vertex, else `accuracy`"}}
	for _, m := range task.Metrics() {
		words = append(words, word{m.Name, m.Doc})
	}
	return words
}

// modeNames binds the mode of a job to the table of package parallel.
func modeNames(field *job.Mode) *named[job.Mode] {
	all := parallel.Modes()
	n := &named[job.Mode]{bound: bound[job.Mode]{field, all[0].Mode}}
	for _, m := range all {
		n.words, n.values = append(n.words, word{m.Name, m.Doc}), append(n.values, m.Mode)
	}
	return n
}

// kindsWithHeads names the kinds of models that read model.heads.
func kindsWithHeads() string {
	var names []string
	for _, k := range nn.Kinds() {
		if k.HasHeads {
			names = append(names, "`"+k.Name+"`")
		}
	}
	return strings.Join(names, " and ")
}

func sampleKinds() (words []word) {
	for kind, brief := range sample.Kinds() {
		words = append(words, word{string(kind), brief})
	}
	return words
}

// modelKinds are the words of model.kind.
func modelKinds() (words []word) {
	for _, k := range nn.Kinds() {
		words = append(words, word{k.Name, k.Brief})
	}
	return words
}
