package config

import (
	"strings"

	"halognn/src/cache"
	"halognn/src/dataset"
	"halognn/src/graph"
	"halognn/src/job"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/policy"
	"halognn/src/residence"
	"halognn/src/sample"
	"halognn/src/task"
)

// Larger values are mistakes that would exhaust the memory.
const (
	mostEpochs = 1e9 // below the epochs that access counts with
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

// section is the keys below one name.
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
				"the directory that `halognn partition --out` wrote",
				"The number of parts must be a multiple of the number of ranks. A run that goes " +
					"on may find the same parts elsewhere."},
			{"split", whole(&c.Data.Split, 0, 0).upTo(dataset.MaxSplits - 1), 0,
				"which of the splits that the parts hold, from 0",
				"`halognn import --split-index all` keeps all that data come with. Parts are " +
					"balanced by the seeds of the first."},
			{"verify", oneOf(&c.Data.Verify, "hashes",
				word{"hashes", "every rank reads its parts once and compares their hashes with " +
					"those that were written, rank 0 also those of the files that all ranks share"},
				word{"sizes", "existence, sizes and shapes only, for graphs that take long to " +
					"read; an altered file then ends the job when an impossible value is read, " +
					"and goes unnoticed if all values are possible"},
			), free,
				"what is verified of the parts before the first step", ""},
		}},

		{name: "model", keys: []*Key{
			{"kind", oneOf(&c.Job.Model.Kind, "sage", modelKinds()...), 0,
				"the layers of the model", "[The models](models.md) says how each is defined."},
			{"layers", whole(&c.Job.Model.Layers, 3, 1).upTo(mostLayers), 0,
				"number of layers", ""},
			{"hidden", whole(&c.Job.Model.Hidden, 256, 1).upTo(mostHidden), 0,
				"width of the hidden layers", ""},
			{"dropout", number(&c.Job.Model.Dropout, 0.5, from(0).below(1)), 0,
				"probability that a hidden activation is dropped",
				"The random bits are keyed, so masks do not depend on ranks or threads."},
			{"norm", oneOf(&c.Job.Model.Norm, "none",
				word{"none", ""},
				word{"layer", "LayerNorm before each hidden activation"},
				word{"batch", "BatchNorm: in training by the statistics of each stream's own " +
					"minibatch, in evaluation and inference by running ones"},
			), 0,
				"normalisation of the hidden layers", ""},
			{"activation", oneOf(&c.Job.Model.Activation, "relu",
				word{"relu", ""},
				word{"elu", "`exp(x) - 1` below 0"},
			), 0,
				"activation of the hidden layers", ""},
			{"residual", boolean(&c.Job.Model.Residual, false), 0,
				"add a vertex's own hidden row before the activation",
				"Not in the first layer, nor in one that makes logits: their rows are of " +
					"other widths."},
			{"edge_weights", boolean(&c.Job.Model.EdgeWeights, true), 0,
				"weigh edges, where the graph's edges have weights",
				"`sage` takes weighted means, `gcn` normalises by weights, `gin` sums weighted " +
					"rows. `gat`, `gatv2` and `model.aggregation: max` cannot, and refuse such a " +
					"graph unless this is false."},
			{"edge_features", boolean(&c.Job.Model.EdgeFeatures, true), 0,
				"read the features of edges, where the graph's edges have some",
				"`gatv2` and `gine` read them, `gine` must; other models ignore them. With " +
					"`parallel.mode: data` and on CPUs."},
			{"jumping", oneOf(&c.Job.Model.Jumping, "none",
				word{"none", "the rows of the last layer, which are the logits"},
				word{"cat", "the rows of all layers side by side, through a linear map (jumping " +
					"knowledge)"},
				word{"max", "the maximum over all layers, column by column, through a linear map"},
			), 0,
				"what the logits are made of", "With jumping knowledge the last layer is a " +
					"hidden one too, and inference with all neighbours keeps the rows of " +
					"all layers."},
			{"aggregation", oneOf(&c.Job.Model.Aggregation, "mean",
				word{"mean", ""},
				word{"max", "the largest of each column"},
			), 0,
				"how `sage` aggregates the rows of neighbours", "Other models ignore it."},
			{"gcn_norm", oneOf(&c.Job.Model.GCNNorm, "right",
				word{"right", "the mean over a vertex and its sampled neighbours"},
				word{"both", "the symmetric normalisation by the degrees of the whole graph; " +
					"what is sampled is scaled to estimate the sum over all neighbours"},
			), 0,
				"how `gcn` weighs an edge", "Other models ignore it."},
			{"heads", whole(&c.Job.Model.Heads, 2, 1).upTo(mostHeads), 0,
				"number of attention heads", "Only " + kindsWithHeads() + " read it."},
			{"head_merge", oneOf(&c.Job.Model.HeadMerge, "concat",
				word{"concat", "side by side: `model.heads` divides `model.hidden`"},
				word{"mean", "their mean: each head is `model.hidden` wide"},
			), 0,
				"how heads make a hidden row", "Those of the last layer are averaged. Only " +
					kindsWithHeads() + " read it."},
			{"bases", whole(&c.Job.Model.Bases, 0, 0).upTo(graph.MaxRelations), 0,
				"basis matrices that `rgcn` combines into the weights of each relation; 0: each " +
					"has its own",
				"Other models ignore it."},
			{"project", whole(&c.Job.Model.Project, 0, 0).upTo(mostHidden), 0,
				"width to which the rows of all vertex types are brought, by a linear map each; " +
					"0: `model.hidden`", "Graphs without vertex types ignore it."},
			{"learned", whole(&c.Job.Model.Learned, 0, 0).upTo(mostHidden), 0,
				"columns of the rows that vertices without features learn; 0: such vertices " +
					"are refused",
				"Each has a row of its own, trained by SparseAdam " +
					"([how](guide/typed.md#learned-rows)); features are read as they are."},
			{"learned_scale", number(&c.Job.Learned.Scale, 0.01, from(0)), 0,
				"learned rows begin uniform in [-scale, scale)", "A whole config of a version " +
					"without this key means 1."},
			{"learned_unread", oneOf(&c.Job.Learned.Unread, nn.UnreadZero,
				word{string(nn.UnreadZero), "zeros; a mean counts the vertex"},
				word{string(nn.UnreadKeep), "the row as it began"},
			), 0,
				"what evaluation and inference read of a learned row that training has " +
					"not changed", "A " +
					"whole config of a version without this key means `keep`."},
			{"slope", number(&c.Job.Model.Slope, 0.2, from(0).upTo(1)), 0,
				"slope of the LeakyReLU of attention scores below 0",
				"Only " + kindsWithHeads() + " read it."},
		}},

		{name: "sample", keys: []*Key{
			{"kind", oneOf(&c.Job.Sample.Kind, sample.Neighbour, sampleKinds()...), 0,
				"how neighbours are drawn in training",
				"Minibatches that are not trained are drawn by `neighbour`. Kinds that weigh " +
					"edges are for `sage` with means, `gcn` and `gin` " +
					"([when](guide/samplers.md))."},
			{"fanouts", fanouts(&c.Drawn.Fanouts, 15, 10, 5), 0,
				"neighbours sampled per vertex and hop, seed hop first, one per layer",
				"`mlp` ignores it, and kind `ladies` in training."},
			{"relation_fanouts", path(&c.Job.RelationFanouts), 0,
				"fanouts of single relations of a graph with types: `writes=5,3 " +
					"paper,cites,paper=10,5`",
				"Other relations have those of `fanouts` ([typed graphs](guide/typed.md)); draws " +
					"by `sample.eval_fanouts` ignore it."},
			{"layer_vertices", whole(&c.Drawn.LayerVertices, layerVertices,
				1).upTo(graph.MaxVertices), 0,
				"vertices that kind `ladies` draws for a layer, on average", "Other kinds ignore " +
					"it, and `labor` refuses it."},
			{"shared", boolean(&c.Job.Sample.Numbers.Shared, false), 0,
				"whether `poisson` draws by random numbers of vertices, as `labor` does: the " +
					"neighbours whose number is below their probability", ""},
			{"share", &named[sample.Sharing]{bound[sample.Sharing]{&c.Job.Sample.Numbers.Share,
				sample.Alone},
				[]word{
					{"rank", "none, each stream has its own"},
					{"node", "those of a node, so that they want the same rows of others"},
					{"all", "all, so that the minibatches of a step have the edges of one that " +
						"large, on any number of ranks"},
				}, []sample.Sharing{sample.Alone, sample.InNodes, sample.Together}}, 0,
				"which ranks have the numbers of `labor` and `sample.shared` in common",
				"Noise that is shared does not average over ranks ([when](guide/samplers.md))."},
			{"dependency", whole(&c.Job.Sample.Numbers.Dependency, 1,
				1).upTo(sample.MaxDependency), 0,
				"steps for which a vertex keeps its number (`labor`, `sample.shared`)",
				"At `n`, each step renews the numbers of one vertex in `n`, so that consecutive " +
					"minibatches read mostly the same rows, which caches and look-ahead " +
					"then save."},
			{"layer_dependency", boolean(&c.Job.Sample.Numbers.Layers, false), 0,
				"whether a vertex keeps its number in all hops (`labor`, `sample.shared`)", ""},
			{"locality", number(&c.Job.Locality.Favour, 1, from(1).upTo(1e6)), 0,
				"how many times likelier `poisson` and `ladies` draw vertices whose rows are at " +
					"hand: local to the rank's node or in a static cache; 1: no likelier",
				"What is drawn then depends on the cache, the parts and the nodes " +
					"([locality](guide/samplers.md#locality))."},
			{"locality_adapt", boolean(&c.Job.Locality.Adapts, false), 0,
				"adapt the factor after each epoch, from 1 up to `sample.locality`, to the share " +
					"of loading in the time of the epoch",
				"The share follows from counted bytes and edges and the rates below, not from a " +
					"clock: equal runs adapt alike. The cache must not change."},
			{"locality_lower", number(&c.Job.Locality.Lower, 0.15, from(0).upTo(1)), 0,
				"`sample.locality_adapt`: share of loading below which the factor goes half of " +
					"the way back",
				""},
			{"locality_upper", number(&c.Job.Locality.Upper, 0.2, from(0).upTo(1)), 0,
				"`sample.locality_adapt`: share above which the next epoch doubles the factor; " +
					"between the two it stays for good", ""},
			{"locality_link", number(&c.Job.Locality.Link, 125e6, above(0)), 0,
				"`sample.locality_adapt`: bytes/s at which a rank gets rows that are " +
					"not at hand", ""},
			{"locality_edges", number(&c.Job.Locality.Edges, 1e7, above(0)), 0,
				"`sample.locality_adapt`: sampled edges/s that a rank draws and trains",
				"A run's `summary.json` tells: `computed_edges`, divided by the ranks and by the " +
					"seconds of `sample`, `forward`, `backward` and `update`."},
			{"locality_vertices", whole(&c.Job.Locality.Vertices, 8192,
				1).upTo(graph.MaxVertices), 0,
				"`sample.locality`: how many vertices of each layer but the input layer are " +
					"drawn likelier: those with the most paths to rows at hand", "In the input " +
					"layer all vertices whose rows are at hand are likelier."},
			{"on", oneOf(&c.Job.DrawOn, parallel.DrawHost,
				word{parallel.DrawHost, "the CPUs"},
				word{parallel.DrawDevice, "the GPU, which then holds the topology; refused where " +
					"it cannot"},
				word{parallel.DrawAuto, "`device` where that can be: with `cuda`, " +
					"`topology.kind: replicated` and a topology (24 bytes a vertex, 4 an edge) " +
					"that fits into half of the device memory that the model leaves"},
			), free,
				"where minibatches that are trained are drawn ([when](gpu.md#minibatches))",
				"No number of the training changes, but minibatches of a GPU have no " +
					"`blocks_digest`."},
			{"eval_fanouts", fanouts(&c.Drawn.EvalFanouts), SameEpoch,
				"fanouts of minibatches that are not trained: of sampled validation " +
					"(`train.eval_mode: sampled`) and `halognn infer --mode sampled`",
				"Empty: those of `sample.fanouts`. SALIENT++ has 20,20,20. They change no number " +
					"of the training but the epoch that validates best; a minibatch of larger " +
					"fanouts takes more memory."},
			{"batch", whole(&c.Job.Batch, 1024, 1).upTo(sample.MaxBatch), 0,
				"seeds of a minibatch", ""},
			{"batch_scope", either(&c.Job.GlobalBatch,
				word{"rank", "the seeds of each stream"},
				word{"global", "the seeds of all streams together, so that a scaling study " +
					"trains alike on any number of ranks"},
			), 0,
				"what `sample.batch` counts", ""},
			{"seeds", either(&c.Job.GlobalSeeds,
				word{"local", "from its own parts"},
				word{"global", "from the whole graph"},
			), 0,
				"where a stream draws its seeds from", ""},
			{"streams", either(&c.Job.StreamPerPart,
				word{"rank", "each rank has a stream"},
				word{"part", "each part has a stream. A rank that owns several parts trains " +
					"their minibatches one after the other and adds up the gradients, so P parts " +
					"give the same minibatches on any number of ranks"},
			), 0,
				"which ranks or parts have a stream: a sequence of minibatches with seeds and " +
					"random draws of its own", ""},
		}},

		{name: "train", keys: []*Key{
			{"epochs", whole(&c.Job.Epochs, 10, 1).upTo(mostEpochs), free,
				"passes over all training seeds", "A run that goes on cannot have fewer than it " +
					"has begun."},
			{"lr", number(&c.Job.Schedule.Base, 0.003, above(0)), 0,
				"learning rate", ""},
			{"learned_lr", number(&c.Job.Learned.LR, 0.01, above(0)), 0,
				"learning rate of learned rows (`model.learned`)", "`train.schedule` changes it " +
					"as it does `train.lr`."},
			{"learned_decay", number(&c.Job.Learned.Decay, 0, from(0)), 0,
				"weight decay of learned rows, decoupled", "In a step only rows that it " +
					"reads decay."},
			{"optimizer", oneOf(&c.Job.Optimizer.Kind, "adam",
				word{"adam", ""},
				word{"adamw", "Adam with decoupled weight decay"},
				word{"sgd", ""},
			), 0,
				"optimizer", ""},
			{"momentum", number(&c.Job.Optimizer.Momentum, 0.9, from(0).below(1)), 0,
				"momentum", "Only `sgd` reads it."},
			{"weight_decay", number(&c.Job.Optimizer.WeightDecay, 0, from(0)), 0,
				"weight decay", "`adam` and `sgd` add it to the gradient, `adamw` applies it to " +
					"the weights."},
			{"schedule", oneOf(&c.Job.Schedule.Kind, "constant",
				word{"constant", ""},
				word{"cosine", "falls to 0 at the end of the run"},
				word{"step", "drops every `train.step_epochs`"},
			), 0,
				"how the learning rate changes", ""},
			{"warmup_steps", whole(&c.Job.Schedule.Warmup, 0, 0), 0,
				"steps over which the learning rate rises linearly from 0", ""},
			{"step_epochs", whole(&c.Job.StepEpochs, 10, 1).upTo(mostEpochs), 0,
				"epochs between two drops of the learning rate", "Only schedule `step` reads it."},
			{"step_factor", number(&c.Job.Schedule.Gamma, 0.5, above(0).upTo(1)), 0,
				"factor of a drop of the learning rate", "Only schedule `step` reads it."},
			{"seed", whole(&c.Job.Seed, 1, 0), 0,
				"seed of all random streams of the run", "Equal seeds give equal runs."},
			{"eval_every", whole(&c.Training.EvalEvery, 1, 0), SameEpoch,
				"epochs between two validations; 0 validates after the last epoch only", ""},
			{"eval_mode", either(&c.Training.EvalFull,
				word{"sampled", "minibatches go through the training pipeline " +
					"(`sample.eval_fanouts`)"},
				word{"full", "layer by layer with all neighbours"},
			), SameEpoch,
				"how the validation metric is computed", "The test metric is always computed " +
					"with all neighbours."},
			{"metric", oneOf(&c.Training.Metric, "auto", metricWords()...), SameEpoch,
				"what validation and test are judged by, and the best epoch chosen by",
				"`summary.json` has the accuracy beside it."},
			{"class_weights", weights(&c.Training.Loss), 0,
				"factor of the loss of each class: `none`, `balanced` (training seeds over " +
					"classes times seeds of the class), or a number for each class",
				"Only for tasks of one class a vertex. The loss is divided by the seeds, not by " +
					"their weights. It is computed on the host, as that of " +
					"`train.label_smoothing`."},
			{"label_smoothing", number(&c.Training.Loss.Smoothing, 0, from(0).below(1)), 0,
				"share of the target that goes to all classes alike", "Only for tasks of one " +
					"class a vertex."},
			{"loss", oneOf(&c.Training.Loss.Loss, task.LossAuto,
				word{task.LossAuto, "the loss of the task; for regression `mse`"},
				word{task.LossSquared, "the squared error"},
				word{task.LossAbsolute, "the absolute error"},
				word{task.LossHuber, "squared up to 1, then absolute"},
			), 0, "the loss of numbers (regression)",
				"Errors are in standard deviations of the training targets. It is computed on " +
					"the host."},
			{"patience", whole(&c.Training.Patience, 0, 0), SameEpoch,
				"validations without improvement after which training stops; 0 never stops " +
					"early", "Refused where the validation vertices give the metric no value."},
			{"allreduce", &named[parallel.SumMode]{bound[parallel.SumMode]{&c.Job.Sum,
				parallel.SumAuto}, []word{
				{"auto", "`reproducible` up to 64 ranks, and with `train.gradient_dtype: bf16`; " +
					"else `mpi`"},
				{"reproducible", "slices are added in rank order: the same bits on every MPI"},
				{"mpi", "MPI_Iallreduce"},
			}, []parallel.SumMode{parallel.SumAuto, parallel.SumReproducible, parallel.SumFast}}, 0,
				"how gradients are added over ranks", ""},
			{"gradient_dtype", either(&c.Job.HalfGradient,
				word{"float32", ""},
				word{"bf16", "half of the bytes: each rank rounds its gradients, their float32 " +
					"sum in rank order is rounded too, at any number of ranks"},
			), 0,
				"what gradients of weights travel as between ranks",
				"The sums are what all ranks update by ([how](design/34-gradients-in-bf16.md)). " +
					"A rank alone rounds nothing. With GPUs `bf16` is added on the hosts. " +
					"Gradients of learned rows and hidden rows travel as before."},
		}},

		{name: "links", doc: linksDoc, keys: []*Key{
			{"negatives", &negatives{bound[sample.Negatives]{&c.Job.Links.Negatives,
				sample.Negatives{Kind: sample.NegativesUniform, Count: 16}}}, 0,
				"negatives of a training link: `uniform:k`, k vertices of the whole graph for " +
					"each link; `joint:k`, the same k for k consecutive links; `local:k`, k " +
					"vertices of the stream's own parts; `batch`, the targets of the " +
					"other links", "Drawn by key."},
			{"corrupt", oneOf(&c.Job.Links.Corrupt, sample.CorruptTarget,
				word{sample.CorruptTarget, ""}, word{sample.CorruptSource, ""},
				word{sample.CorruptBoth, "source and target in turn"},
				word{sample.CorruptPair, "source and target at once"}), 0,
				"the end of a link that a negative replaces", ""},
			{"filter", boolean(&c.Job.Links.Filter, false), 0,
				"draw again where a negative is an edge of the graph", ""},
			{"exclude", boolean(&c.Job.Links.Exclude, true), 0,
				"leave the links of a minibatch, and their reverses, out before its neighbours " +
					"are drawn",
				"With `false` a model in training sees the links that it is to predict; later it " +
					"does not."},
			{"score", oneOf(&c.Job.Links.Score, task.ScoreAuto, word{task.ScoreAuto,
				"`dot`, or `mlp` where " +
					"links have labels"}, word{task.Dot, "the inner product of the " +
				"embeddings"}, word{task.Cosine, "that of embeddings of length 1"},
				word{task.DistMult, "an inner product with a learned weight for each column"},
				word{task.MLP, "a network of one hidden layer reads the product of the " +
					"embeddings, column by column"}), 0, "how a link is rated", ""},
			{"loss", oneOf(&c.Job.Links.Loss, task.Contrastive,
				word{task.Contrastive, "softmax cross-entropy of a link among its negatives"},
				word{task.CrossEntropy, "binary, the mean over a link and its negatives"}), 0,
				"the loss of links", "It is divided by the links of all ranks."},
			{"width", whole(&c.Job.Links.Width, 0, 0).upTo(mostHidden), 0,
				"the width of embeddings", "With `0` that of `model.hidden`."},
			{"scale", number(&c.Job.Links.Scale, 1, above(0).upTo(1e6)), 0,
				"factor of the scores in the loss", "For `cosine`, whose scores are at most 1."},
			{"eval_negatives", &countOrAll{whole(&c.Job.Links.Judged, 100,
				1).upTo(graph.MaxVertices)}, SameEpoch,
				"negatives that validation and test rank the target of a link among, keyed by " +
					"the link; or `all`",
				"Vertices to which the source has a link are left out."},
			{"graph", oneOf(&c.Job.Links.Graph, job.TrainGraph,
				word{job.TrainGraph, "training links, and edges that are no links"},
				word{job.TrainValidGraph, "validation links too: embeddings are computed " +
					"once more"}), SameEpoch,
				"what passes messages when test links are judged", ""},
			{"eval_file", path(&c.Job.Links.JudgedFile), SameEpoch,
				"a file with these vertices instead: a line for each validation and test link " +
					"with source, target and the others, by ids of the source; or a .npy of " +
					"integers", ""},
		}},

		{name: "exchange", keys: []*Key{
			{"sums", oneOf(&c.Sums, SumsOff,
				word{SumsOff, "rows alone travel"},
				word{SumsOn, "the neighbours that a vertex has in one part travel as their sum, " +
					"added by the owner, where fewer bytes do ([how](design/26-sums.md)); of " +
					"learned rows those of graphs with vertex types, for `rgcn` and `sage`, " +
					"whose gradients come back alike"},
				word{SumsAuto, "`on` if that is possible, and if the bytes that it spares in " +
					"some minibatches take longer on the network, as measured when the run " +
					"begins, than choosing and adding sums; `summary.json` says which, and why"},
			), MayChange,
				"whether owners send rows, or sums of rows where the input layer needs " +
					"only the sum",
				"The numbers are the same. `on` needs a model whose input layer has a mean, sum " +
					"or maximum over neighbours: `sage`, `gcn`, `gin` or `rgcn`."},
			{"nodes", oneOf(&c.Nodes, SumsOff,
				word{SumsOff, "each rank asks for itself"},
				word{SumsOn, "for each row that ranks of a node lack, one of them asks once a " +
					"step, and passes it on to all that want it ([how](design/35-nodes.md))"},
				word{SumsAuto, "`on` if that is possible and some minibatches, fetched both ways " +
					"when the run begins, without a cache, sums and pipeline, come sooner; " +
					"`summary.json` says which, and why. `infer` and `evaluate` take `off`"},
			), MayChange,
				"whether ranks of a node fetch rows of other nodes as one",
				"The numbers are the same. Rows that several ranks of a node want in one step " +
					"cross the network once, and each rank exchanges messages with fewer others, " +
					"unless `exchange.sums` is on; in turn the ranks of a node wait for each " +
					"other twice more for each minibatch, which a `pipeline.depth` of 4 hides " +
					"better than one of 2. Sums of rows and rows of edges go from rank to rank " +
					"as before. Without effect on one node, and with one rank a node."},
			{"window", whole(&c.Job.Window, 0, 0), MayChange,
				"bytes of rows that a rank has under way at a time; 0 is no limit",
				"For links on which gradients wait behind rows: what a link carries in some 30 " +
					"ms, as 750000 at 200 Mbit/s, with a `pipeline.depth` of 4. Rows then go by " +
					"pieces, and the network's buffers stay short."},
		}},

		{name: "cache", doc: cacheDoc, keys: []*Key{
			{"policy", oneOf(&c.Job.Cache.Policy, policy.Lookahead, policies()...), free,
				"which remote rows a rank keeps",
				"With `cache.placement: group` or `parts`, with `cache.source: files` and with " +
					"`sample.locality` the default is `vip`, or `sim` with `sample.kind: " +
					"ladies`; with `model.learned` it is `none`."},
			{"alpha", number(&c.Job.Cache.Alpha, 0.1, from(0)), free,
				"capacity: the rows of a rank's cache over the vertices of an average rank", ""},
			{"halo_fraction", number(&c.Job.Cache.HaloFraction, 0, from(0).upTo(1)), free,
				"capacity as a fraction of the rank's 1-hop halo; 0 leaves it to " +
					"`cache.alpha`", ""},
			{"halo_hops", whole(&c.Job.Cache.HaloHops, 0, 0).upTo(mostLayers), free,
				"`degree`, `paths` and `prefetch`: hops from the own vertices within which " +
					"remote vertices are kept; 0 is the number of layers",
				"MassiveGNN has 1."},
			{"gamma", number(&c.Job.Cache.Gamma, 0.995, above(0).upTo(1)), free,
				"`prefetch`: decay of a row's score in a step that does not use the row",
				"With 1 no row decays, so none is evicted: rounds only fill slots that are empty."},
			{"delta", whole(&c.Job.Cache.Delta, 32, 1), free,
				"`prefetch`: minibatches of a rank between two eviction rounds",
				"That is as many steps, but with `sample.streams: part` a step may train several " +
					"minibatches."},
			{"leave", oneOf(&c.Job.Cache.Leave, policy.LeaveUnused,
				word{policy.LeaveScore, "those whose score has decayed to `cache.gamma` to the " +
					"power of `cache.delta`, as in MassiveGNN's algorithm"},
				word{policy.LeaveUnused, "those that no minibatch has read since the last round"},
			), free,
				"`prefetch`: rows that may leave in a round",
				"`unused` fetches [fewer rows](results/massivegnn.md#eviction-over-long-runs)."},
			{"evict", boolean(&c.Job.Cache.Evict, true), free,
				"`prefetch`: whether rows are exchanged; false keeps the rows that the buffer " +
					"begins with", ""},
			{"initial", oneOf(&c.Job.Cache.Initial, "degree",
				bare(policy.Initial())...,
			), free,
				"`prefetch`: the ranking whose best rows the buffer begins with", ""},
			{"scores", &named[cache.Layout]{bound[cache.Layout]{&c.Job.Cache.Layout,
				cache.LayoutAuto}, []word{
				{"auto", "the smaller one"}, {"dense", "4 bytes a vertex"},
				{"compact", "8 bytes a candidate"},
			}, []cache.Layout{cache.LayoutAuto, cache.LayoutDense, cache.LayoutCompact}}, free,
				"`prefetch`: layout of the scoreboard", "Decisions are the same."},
			{"window", whole(&c.Job.Cache.Window, 0, 0), free,
				"`lookahead`: minibatches that are known in advance",
				"0 plans as many as reuse asks for and memory allows (1 GiB for minibatches that " +
					"wait). They may belong to the next epochs."},
			{"level", boolean(&c.Job.Cache.Level, false), free,
				"`lookahead`: whether rows are fetched a step early where the next step has more " +
					"to fetch",
				"It evens out the exchange, and fetches a few rows more."},
			{"placement", oneOf(&c.Job.Cache.Placement, policy.PlacementOwn,
				word{policy.PlacementOwn, "every rank keeps the rows that are best for itself"},
				word{policy.PlacementGroup, "the ranks of a node divide the rows among " +
					"themselves and read each other's caches in shared memory, so that together " +
					"they hold more; `/dev/shm` must have room for the caches of the node"},
				word{policy.PlacementParts, "every rank keeps the rows of its own parts that the " +
					"ranks of its node read most, and they read each other's caches: a baseline " +
					"for `group`, placed by the partition alone; only with `cache.source: files`"},
			), free,
				"where the rows of a static cache lie", ""},
			{"peer_cost", costOrAuto(&c.Job.Cache.PeerCost), free,
				"placement `group`: the cost of a row in a peer's cache over the cost of a row " +
					"that no cache of the node holds, if an own row costs nothing",
				"0 spreads the rows as widely as possible, 1 gives every rank of the node the " +
					"same rows. In between, every rank keeps the hottest rows, and the others " +
					"are kept by one rank each. `auto` measures it when the cache is opened " +
					"(`cache.peer_cost` of `summary.json`); with a number, runs place rows alike."},
			{"source", oneOf(&c.Job.Cache.Source, policy.SourceOwners,
				word{policy.SourceOwners, "the ranks that own them; the rows of the ranks of a " +
					"node are read in its memory and need no cache"},
				word{policy.SourceFiles, "the feature files of all parts, which every rank maps: " +
					"nothing is sent, and caches may hold any row. For features that the memory " +
					"of a node cannot hold, on storage that every rank reads " +
					"([more](guide/tuning-the-cache.md#caches-of-a-node))"},
			), free,
				"where rows come from that no cache holds", ""},
		}},

		{name: "pipeline", keys: []*Key{
			{"depth", whole(&c.Job.Depth, 2, 0).upTo(mostDepth), free,
				"minibatches that are prepared ahead of the one that trains; 0 prepares each " +
					"when it is needed", ""},
			{"workers", whole(&c.Compute.Workers, 0, 0).upTo(MaxThreads), free,
				"goroutines that sample and gather",
				"0 is one for each minibatch that is prepared at the same time, up to the rank's " +
					"CPUs, with `cuda` all but two of them, and at least 1. They share the CPUs " +
					"with the compute threads."},
		}},

		{name: "topology", keys: []*Key{
			{"kind", either(&c.Job.Partitioned,
				word{"replicated", "every rank sees the whole topology, of which the ranks " +
					"of a node share one copy; features are partitioned"},
				word{"partitioned",
					"every rank holds the in-edges of its own vertices, and " +
						"asks the owners of others for their draws: two collectives for each hop " +
						"after the first ([when](guide/topology.md))"},
			), free,
				"where the topology lies", "No number of the training changes."},
			{"load", oneOf(&c.Run.Load, "map",
				word{"map", "through the page cache"},
				word{"copy", "once into shared memory per node, for filesystems on which page " +
					"faults are slow"},
			), free,
				"how the topology is read", ""},
		}},

		{name: "parallel", keys: []*Key{
			{"mode", modeNames(&c.Job.Mode), 0,
				"how ranks share a step",
				"With `split` and `hybrid` a minibatch has `sample.batch` seeds for each rank " +
					"that shares it, and `pipeline.depth` is 4 by default. `cache.policy` is " +
					"`none` by default with `split` and `push-pull`."},
		}},

		{name: "compute", keys: []*Key{
			{"device", oneOf(&c.Compute.Device, "cpu",
				word{"cpu", "oneDNN or OpenBLAS, and SIMD kernels"},
				word{"cuda", "a GPU for each rank, with `libhalognn_cuda.so` of `make cuda`, " +
					"which is loaded at run time"},
				word{"ref", "plain Go, to read and to debug"},
			), SameEpoch,
				"the device that computes", ""},
			{"threads", whole(&c.Compute.Threads, 0, 0).upTo(MaxThreads), free,
				"compute threads of a rank",
				"0 is all CPUs that the launcher bound the rank to (or its share, where several " +
					"ranks are bound to the same CPUs). `cuda` does not use it."},
			{"gpu_rows", share(&c.Compute.GPU.Rows), free,
				"`cuda`: how many feature rows of the own parts, from the hottest on, lie in " +
					"device memory",
				"`auto` is as many as fit into half of what the model leaves. No number of the " +
					"training changes."},
			{"gpu_reads", oneOf(&c.Compute.GPU.Reads, residence.ReadsAuto,
				word{residence.ReadsAuto, "the faster one, measured at the start"},
				word{residence.ReadsCopy, "the host gathers them, and one copy takes them up"},
				word{residence.ReadsMapped, "the device reads them in place, from pinned pages, " +
					"even where means made by the host would be fewer bytes"},
			), free,
				"`cuda`: how the other rows of this rank's memory reach the device " +
					"([gpu.md](gpu.md#feature-rows))",
				"No number of the training changes."},
			{"gradients", oneOf(&c.Compute.Gradients, parallel.TransportAuto,
				word{string(parallel.TransportAuto), "the first of the others that works"},
				word{string(parallel.TransportNCCL), "on the GPUs, by NCCL"},
				word{string(parallel.TransportMPI), "on the GPUs, by messages of an MPI that " +
					"takes device memory"},
				word{string(parallel.TransportStaged), "on the hosts, through pinned memory"},
			), free,
				"`cuda`: how gradients are added over ranks ([gpu.md](gpu.md#gradients))",
				"The sums are the same, except that with `train.allreduce: mpi` NCCL adds in an " +
					"order of its own."},
			{"shuffles", oneOf(&c.Compute.Shuffles, parallel.ShuffleAuto,
				word{string(parallel.ShuffleAuto), "`direct` where gradients go between the " +
					"GPUs, else `staged`"},
				word{string(parallel.ShuffleDirect), "between the GPUs, by what carries " +
					"gradients and in one queue with them"},
				word{string(parallel.ShuffleStaged), "between the hosts, through pinned memory"},
			), free,
				"`cuda`, where ranks share minibatches or hold columns: how rows between " +
					"layers travel",
				"No number of the training changes."},
			{"gemm", oneOf(&c.Compute.GEMM, "auto",
				word{"auto", "what `HALOGNN_GEMM` names, or else oneDNN if it can be loaded (on " +
					"x86-64), or else OpenBLAS"},
				word{"onednn", "oneDNN 2 or 3 (`libdnnl.so`, or the file that " +
					"`HALOGNN_ONEDNN_LIB` names), loaded at run time"},
				word{"openblas", "the BLAS that the program is linked with"},
				word{"go", "gonum's plain Go, to compare with"},
			), SameEpoch,
				"`cpu`: the library of matrix products",
				"With `auto`, and `simd` at AVX-512, factors of bf16 need none on an AMD " +
					"processor with AVX512-BF16: kernels of the program multiply them. Intel's " +
					"processors take these instructions at half of the rate of float32: there " +
					"oneDNN multiplies by AMX or, without it, in float32. Results differ in the " +
					"last bits between libraries; `device` in `summary.json` names the one that " +
					"was used."},
			{"precision", oneOf(&c.Compute.Precision, "float32",
				word{"float32", ""},
				word{"bf16", "each factor is rounded to bfloat16, to nearest and ties to even, " +
					"and the rows that layers read are stored so; sums, weights, gradients over " +
					"ranks, what the optimizer keeps, sums over edges, norms and losses " +
					"stay float32"},
				word{"tf32", "the same with TF32: the range of bfloat16, and 11 bits of " +
					"significand instead of 8"},
			), SameEpoch,
				"the precision of the factors of matrix products",
				"`cuda` multiplies bf16 and tf32 by tensor cores. On `cpu`, products of bf16 are " +
					"faster on AMD's processors with AVX512-BF16, and with AMX and oneDNN. " +
					"Elsewhere float32 multiplies the rounded factors, the same definition: no " +
					"product is faster than with `float32`, though fewer bytes move; `device` in " +
					"`summary.json` says so."},
			{"simd", oneOf(&c.Compute.SIMD, "auto",
				word{"auto", "the best that the CPU has"},
				word{"scalar", ""}, word{"avx2", ""}, word{"avx512", ""},
			), SameEpoch,
				"vector instructions of the kernels",
				"Results may differ in the last bits between levels; `summary.json` has the " +
					"level."},
		}},

		{name: "checkpoint", doc: checkpointDoc, keys: []*Key{
			{"every_steps", whole(&c.Saves.EverySteps, 0, 0), free,
				"steps between two saves; 0 does not save by steps", ""},
			{"every_minutes", number(&c.Saves.EveryMinutes, 5, from(0)), free,
				"minutes between two saves, by rank 0's clock; 0 does not save by time",
				"At least 200 times what the last save took, so that saves cost 0.5 % of the " +
					"time at most; a run whose saves take that long says so once."},
			{"keep", whole(&c.Saves.Keep, 3, 1), free | NoResult,
				"checkpoints that are kept: the newest", ""},
		}},

		{name: "run", keys: []*Key{
			{"dir", path(&c.Run.Dir).mustBeGiven(), free | NoResult,
				"the directory that the run writes its results to",
				"It must not hold another run."},
			{"ranks_per_node", whole(&c.Run.RanksPerNode, 0, 0), MayChange,
				"ranks of a pretended node, to measure on one machine what would cross a network",
				"0 takes the nodes as launched. A pretended node lies within a real one."},
			{"stage_dir", path(&c.Run.StageDir), free,
				"node-local directory that topology and parts are copied to before the first " +
					"step, once per node",
				"The copies stay for later runs, which verify them as `data.verify` says and " +
					"make damaged ones anew. A run that cannot begin removes those that it made. " +
					"A directory that does not exist is made: for all users where its parent is, " +
					"as `/tmp`."},
			{"scratch_dir", path(&c.Run.ScratchDir), free | NoResult,
				"node-local directory in whose files inference with all neighbours keeps the " +
					"rows of hidden layers; empty keeps them in memory",
				"For graphs whose hidden rows, `4 * vertices * model.hidden` bytes a layer, do " +
					"not fit: two layers exist at a time. A layer that takes more than half of " +
					"the memory that is free for files is read by some columns at a time, to the " +
					"same bits, but by `gat` and `gatv2`, whose attention needs whole rows: " +
					"those are slow then. The files have no names and go with the job."},
			{"progress", oneOf(&c.Run.Progress, "auto",
				word{"auto", "a bar if standard error is a terminal, else " +
					"lines"}, word{"bar", ""}, word{"lines", ""},
			), free | NoResult,
				"how progress is shown: steps, loss and time left, in a line every 5 s or " +
					"beside a bar",
				"Under most launchers standard error is not a terminal, even if you sit at one: " +
					"ask for `bar`."},
			{"stall_seconds", number(&c.Run.StallSeconds, 60, from(0).upTo(1e6)), free | NoResult,
				"seconds without progress on any rank after which the job is ended; 0 waits for " +
					"ever",
				"The message names who is waited for ([faults.md](faults.md))."},
		}},
	}
	for _, s := range all {
		for _, k := range s.keys {
			k.Name = s.name + "." + k.Name
		}
	}
	return all
}

// Words with the same meaning in other packages; package cmd passes them on.
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
		"the run chooses among `none`, `vip` (`sim` with `sample.kind: ladies`), `prefetch` " +
			"(with its parameters) and `lookahead` of the given capacity. It counts the rows " +
			"that each would transfer, tries the best ones in the first epochs (at most a third " +
			"of all) and keeps the fastest; among those within 2 % of it, the one that transfers " +
			"fewest rows. A run that goes on from a checkpoint keeps the choice. The terminal " +
			"and `cache.chosen` of `summary.json` say what was chosen and why"})
}

const cacheDoc = `A cache holds copies of remote rows, so that a rank need not fetch them again. A
*static* cache is filled once, before the first step, with the rows that a ranking puts first: of
equal ones, those that more vertices may sample (out-degree), then those of lower id. A
*dynamic* cache decides at every step which of the fetched rows stay. Evaluation and inference
neither read nor change a dynamic cache. No policy changes a number of the training, except with
` + "`sample.locality`" + `. If all ranks are on one node, rows are read from memory, and there is no
cache unless ` + "`cache.source`" + ` is ` + "`files`" + `.`

const linksDoc = `Of a graph whose task is links ([links](guide/links.md)); other graphs ignore them. A
minibatch has ` + "`sample.batch`" + ` links, whose ends and negatives are its seeds. Where links have
labels only ` + "`exclude`, `score`, `width` and `graph`" + ` are read.`

const checkpointDoc = `What is saved, and how a run goes on: [checkpoints.md](checkpoints.md). The
state is also saved when a signal asks the run to stop, and at the end of training.`

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
