package dataset_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/topology/graph"
)

// Files as programs and people write them: what each becomes, or which error tells.
func TestImportKinds(t *testing.T) {
	const path3 = "source,target\n0,1\n1,2\n" // vertices 0, 1, 2
	type ids = []graph.VertexID
	type want struct {
		vertices, edges int64
		names           []string // of the feature columns
		classes         int
		labels          []int32
		features        []float32
		split           [3]ids // if not empty
		weights         []float32
		says            []string // in the report
		silent          []string // not in the report
		fault           []string // in the error
	}
	// The files of a case, names and contents: a table of edges, and one of vertices and more.
	edges := func(rows string) []string { return []string{"edges.csv", rows} }
	tables := func(edges, nodes string, more ...string) []string {
		return append([]string{"edges.csv", edges, "nodes.csv", nodes}, more...)
	}
	type change = func(o *dataset.ImportOptions)
	ends := func(source, target string) change {
		return func(o *dataset.ImportOptions) { o.Table.Source, o.Table.Target = source, target }
	}
	weighted := func(source, target, weight string) change {
		return func(o *dataset.ImportOptions) {
			ends(source, target)(o)
			o.Table.Weight = weight
		}
	}
	labels := func(columns ...string) change {
		return func(o *dataset.ImportOptions) { o.Table.Labels = columns }
	}
	features := func(columns ...string) change {
		return func(o *dataset.ImportOptions) { o.Table.Features = columns }
	}
	ignore := func(columns ...string) change {
		return func(o *dataset.ImportOptions) { o.Ignore = columns }
	}
	noLabel := func(words ...string) change {
		// without words not nil: no word means none
		return func(o *dataset.ImportOptions) { o.NoLabel = append([]string{}, words...) }
	}
	split := func(shares string) change {
		return func(o *dataset.ImportOptions) { o.Split = shares }
	}
	splitFile := func(name string) change {
		return func(o *dataset.ImportOptions) { o.Split = filepath.Join(o.In, name) }
	}
	const people = "id,f\nann,1\nbob,2\ncid,3\n"
	endless := want{fault: []string{"edges.csv: line 1", "which columns are the ends of an edge?"}}
	for _, c := range []struct {
		name   string
		files  []string
		change change
		want
	}{
		// ends
		{"a pair among other names",
			edges("from,to,source\n1,2,web\n2,3,app\n"), nil,
			want{vertices: 3, edges: 2, says: []string{
				"from: source (its names are a pair)",
				"column source of edges.csv is not read",
			}}},
		{"another pair among other names",
			edges("target,src,dst\n0,1,2\n7,2,3\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"src: source", "target: ignored"}}},
		{"two pairs",
			edges("from,to,source,target\n1,2,a,b\n"), nil,
			want{fault: []string{"source and target, or from and to", "--source", "--target"}}},
		{"one of two pairs, by a flag",
			edges("from,to,source,target\n1,2,a,b\n"),
			func(o *dataset.ImportOptions) { o.Table.Source = "from" },
			want{vertices: 2, edges: 1}},
		{"two names of one end",
			edges("source,src,target,to\na,b,c,d\n"), ignore("target"),
			want{
				fault: []string{"It could be source, src, to; say which by --source and --target"},
			}},
		{"names of two pairs, one of each end",
			edges("source,dst\na,b\n"), nil,
			want{vertices: 2, edges: 1}},
		{"names that are alike but for 1 and 2",
			edges("drug1,drug2,p\na,b,.5\nb,c,.7\n"), nil,
			want{vertices: 3, edges: 2, says: []string{
				"drug1: source (its names are a pair)",
				"column p of edges.csv is not read",
			}}},
		{"names that are alike but for from and to",
			edges("from_user,to_user\na,b\n"), nil,
			want{vertices: 2, edges: 1}},
		{"names of Neo4j",
			edges(":START_ID(P),since:int,:END_ID(P)\na,1,b\n"), nil,
			want{vertices: 2, edges: 1}},
		{"two id spaces of Neo4j",
			edges(":START_ID(Person),:END_ID(Movie)\n1,1\n1,2\n"), nil,
			want{fault: []string{
				":START_ID(Person) and :END_ID(Movie)",
				"name two kinds of vertices",
				"typed.md",
			}}},
		{"an id space of Neo4j by a flag",
			edges(":START_ID,:END_ID(M)\n1,1\n"),
			func(o *dataset.ImportOptions) { o.Table.Source = ":START_ID" },
			want{fault: []string{"name two kinds of vertices"}}},
		{"two id spaces of types",
			[]string{
				"edges.P.r.M.csv", ":START_ID(P),:END_ID(M)\n1,1\n1,2\n",
				"nodes.P.csv", "id,f\n1,0\n",
				"nodes.M.csv", "id,f\n1,0\n2,0\n",
			},
			nil,
			want{vertices: 3, edges: 2}},
		{"times that are called alike",
			edges("start_time,end_time,station_a,station_b\n1,2,a,b\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"times between which a row holds",
			edges("valid_from,valid_to,person,firm\n1,2,a,b\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"times of other letters",
			edges("startDate,endDate,a,b\n1,2,a,b\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"times of events",
			edges("start_at,end_at,a,b\n1,2,a,b\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"a matrix of R",
			edges("V1,V2,V3\n0,1,1\n1,0,0\n1,0,0\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"a series of columns",
			edges("x0,x1,x2\na,b,c\nb,c,d\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"a pair after another",
			edges("score1,score2,drugA,drugB\n1,2,a,b\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"a pair before another",
			edges("from_user,to_user,from_shop,to_shop\na,b,c,d\n"), nil,
			want{fault: []string{"which columns are the ends"}}},
		{"a pair before times",
			edges("candidate1,candidate2,start_time,end_time\na,b,1,2\n"), nil,
			want{vertices: 2, edges: 1}},
		{"fields between colons",
			edges("1::2::5\n2::3::4\n"), nil,
			want{fault: []string{"separated by ::", "sed"}}},
		{"ids with colons after a number",
			tables("source,target\n20::1,20::2\n", "node\n20::1\n20::2\n"), nil,
			want{vertices: 2, edges: 1}},
		{"ids with colons",
			tables("source,target\nstd::a,std::b\n", "node\nstd::a\nstd::b\n"), nil,
			want{vertices: 2, edges: 1}},
		{"types of Neo4j",
			edges(":START_ID,:END_ID,:TYPE\na,b,KNOWS\n"), nil,
			want{fault: []string{"column :TYPE", "--ignore :TYPE"}}},
		{"names of Neptune", edges("~id,~from,~to\n0,a,b\n"), nil, want{vertices: 2, edges: 1}},
		{"a matrix with names",
			edges(";A;B;C\nA;0;1;0\nB;1;0;1\nC;0;1;0\n"), nil,
			want{fault: []string{"line 1", "an adjacency matrix", `sep=";"`}}},
		{"a matrix of marks",
			edges("0,1,1\n1,0,0\n1,0,0\n"), nil,
			want{
				fault: []string{"3 rows with as many columns of 0 and 1 are an adjacency matrix"},
			}},
		{"triples",
			edges("a\tlikes\tb\nb\tlikes\tc\n"),
			func(o *dataset.ImportOptions) { o.Table.NoHeader = true },
			want{fault: []string{"columns 0 and 1, or 0 and 2", "--source", "--target"}}},
		{"triples of numbers",
			edges("007\tlikes\t7\n7\tlikes\t07\n"), ends("0", "2"),
			want{vertices: 3, edges: 2, says: []string{"column 1 of edges.csv is not read"}}},
		{"ends of two kinds",
			edges("user,item,stars\n1,2,5\n2,3,4\n"), ends("user", "item"),
			want{
				vertices: 3, edges: 2,
				says: []string{"1 of 3 ids are in both columns, user and item"},
			}},
		{"ends of one kind",
			edges("txId1,txId2\n1,2\n2,3\n"), nil,
			want{vertices: 3, edges: 2, silent: []string{"in both columns"}}},
		{"a bipartite graph of KONECT",
			edges("% bip unweighted\n1 1\n1 2\n"), nil,
			want{fault: []string{"bipartite", "ids of their own"}}},
		{"edges to vertices without a row",
			tables("source,target\n0,1\n7,1\n0,8\n1,0\n", "id,f\n0,1\n1,1\n"), nil,
			want{fault: []string{`line 3: vertex "7"`, "2 edges name such vertices"}}},
		{"classes of edges called Label",
			edges("Source,Target,Label\na,b,ok\nb,c,ok\nc,a,fraud\n"), nil,
			want{
				vertices: 3, edges: 3, says: []string{"--link-classes Label"},
				silent: []string{"display"},
			}},
		{"a label of edges that names them",
			edges("Source,Target,Type,Label\na,b,Directed,x\nb,c,Directed,\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"for display", "--link-classes Label"}}},
		// ids
		{"ids of which digits are lost",
			edges("source,target\n1.53E+18,1.54E+18\n"), nil,
			want{fault: []string{"line 2", `"1.53E+18"`, "digits are lost"}}},
		{"joined files with byte order marks",
			edges("\ufeffsource,target\na,b\n\ufeffsource,target\nb,c\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"line 3 repeats the names"}}},
		{"two columns that may be the id",
			tables(path3, "views,user_id\n5,0\n6,1\n7,2\n"), nil,
			want{fault: []string{"views, the first one, or user_id", "--id"}}},
		{"a column like an id that is the label",
			tables(path3, "paper,topic_id,f\n0,a,1\n1,b,2\n2,a,3\n"), labels("topic_id"),
			want{vertices: 3, edges: 2, classes: 2, names: []string{"f"}}},
		{"a column like an id that is left out",
			tables(path3, "paper,venue_id,f\n0,8,1\n1,8,2\n2,9,3\n"), ignore("venue_id"),
			want{vertices: 3, edges: 2, names: []string{"f"}}},
		{"words that end with ID",
			tables(path3, "person,COVID,VALID,GRID\n0,8,1,1\n1,8,2,1\n2,9,3,1\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"COVID", "VALID", "GRID"}}},
		{"no name beside an id",
			tables(path3, ",paper_id,f\n5,0,1\n6,1,2\n7,2,3\n"), nil,
			want{
				fault: []string{"the first one, without a name, or paper_id", "--id", "--ignore"},
			}},
		{"ids with a point among integers",
			edges("source,target\n1.0,2\n2.0,3\n"), nil,
			want{fault: []string{"line 2", `"1.0"`, "1 would be another vertex"}}},
		{"ids with an exponent among integers",
			edges("source,target\n2,100000\n1e5,2\n"), nil,
			want{fault: []string{"line 3", `"1e5"`}}},
		{"ids all with a point",
			edges("source,target\n1.0,2.0\n"), nil,
			want{vertices: 2, edges: 1}},
		{"a missing id among integers",
			edges("source,target\n1,2\n2,NaN\n"), nil,
			want{fault: []string{"line 3", `"NaN"`, "missing"}}},
		{"a word for none among words",
			edges("source,target\na,b\nb,NA\n"), nil,
			want{
				vertices: 3, edges: 2, says: []string{`line 3 of edges.csv names the vertex "NA"`},
			}},
		{"a word among integers",
			edges("source,target\n1,2\n2,x\n3,1\n"), nil,
			want{
				vertices: 4, edges: 3,
				says: []string{`1 of 4 ids are not integers, such as "x" on line 3`},
			}},
		{"the names of the columns again",
			edges("source,target\n1,2\nsource,target\n2,3\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"line 3 repeats the names"}}},
		{"another spelling in the node table",
			tables("source,target\n1.0,2.0\n", "id,f\n1,1\n2,1\n"), nil,
			want{fault: []string{`vertex "1.0"`, "nodes.csv calls it 1"}}},
		{"the id is another column",
			tables(path3, "user_id,name,f\n0,A,1\n1,B,1\n2,C,1\n"), nil,
			want{fault: []string{"in column name, which is the id", "user_id could be", "--id"}}},
		{"a double id",
			tables(path3, "kind,f\n0,1\n0,2\n"), nil,
			want{fault: []string{`vertex "0" comes twice in column kind`, "--id"}}},
		{"the first of several rows",
			tables(path3, "id,f,y\n0,5,a\n1,6,b\n0,7,b\n0,5,a\n2,8,b\n1,9,a\n"),
			func(o *dataset.ImportOptions) { o.Table.FirstRows = true },
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{0, 1, 1},
				features: []float32{5, 6, 8},
				says: []string{
					"3 rows of nodes.csv repeat the vertex of an earlier row, and are left out; " +
						"2 of these rows differ",
				},
			}},
		{"columns named by numbers",
			tables("1\t2\t3\t88\n3\t2\t1\t87\n", "1|24|M|t|8\n2|53|F|o|9\n3|3|M|w|3\n"),
			func(o *dataset.ImportOptions) {
				o.Table.Labels, o.Ignore = []string{"3"}, []string{"2", "4"}
			},
			want{vertices: 3, edges: 2, classes: 3, features: []float32{24, 53, 3}}},
		{"the id of Neo4j beside a name",
			tables(path3, "name,pId:ID(P),f\nA,0,1\nB,1,2\nC,2,3\n"), ignore("name"),
			want{vertices: 3, edges: 2, names: []string{"f"}}},
		{"columns that pandas numbered",
			tables(path3, "0,1,2,3\n0,.5,.5,1\n1,.1,.3,2\n"), nil,
			want{fault: []string{"nodes.csv: line 1", "--header", "--no-header"}}},
		// first rows
		{"ids that come again are no names",
			edges("a,b\nb,c\nc,a\n"), nil,
			want{vertices: 3, edges: 3}},
		{"ids that are alike are no names",
			edges("Frame#1 Frame#2 {}\nFrame#2 #core {}\n#core Frame#1 {}\n"), ends("0", "1"),
			want{vertices: 3, edges: 3}},
		{"names over numbers that come again",
			edges("word,count\ncat,5\ncount,7\n"), ends("word", "count"),
			want{vertices: 4, edges: 2}},
		{"an empty field is no name",
			edges("2B,410,AER,KZN,,0\n2B,410,ASF,KZN,,0\n"), ends("2", "3"),
			want{vertices: 3, edges: 2}},
		{"a number for a column that has a name",
			edges("ab,cd\nx,y\n"), ends("0", "1"),
			want{fault: []string{`no column "0"`, "--no-header calls them 0, 1"}}},
		{"names in a comment",
			tables("# from,to\n0,1\n1,2\n", "# id,f0,label\n0,0.5,1\n1,0.25,0\n2,0.1,1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, names: []string{"f0"}, labels: []int32{1, 0, 1},
				says:   []string{`the comment "# id,f0,label": names of the columns`},
				silent: []string{"skipped as a comment"},
			}},
		{"names in a comment over words",
			edges("# made by hand\n# source target data\na b 1\nc a x\n"), nil,
			want{
				vertices: 3, edges: 2,
				says: []string{"target: target", "column data of edges.csv is not read"},
			}},
		{"a comment like names over names",
			tables(path3, "# id, label, class\nuser,age,team\n0,5,a\n1,6,b\n2,7,a\n"),
			labels("team"),
			want{vertices: 3, edges: 2, classes: 2, names: []string{"age"}}},
		{"a remark over rows of blanks",
			tables("0 1\n1 2\n", "# one label each\n0 .5 3\n1 .25 4\n2 .1 5\n"), nil,
			want{vertices: 3, edges: 2, features: []float32{.5, 3, .25, 4, .1, 5}}},
		{"names in a row below a comment",
			edges("# target,source\nsource,target\na,b\n"), nil,
			want{vertices: 2, edges: 1, silent: []string{"# target"}}},
		{"a comment over columns named by numbers",
			edges("# from,to,w\n0,1,2\n1,2,3\n"), weighted("0", "1", "2"),
			want{vertices: 3, edges: 2, weights: []float32{2, 3}}},
		{"names in a comment over a row with an empty field",
			tables("# target,source,weight\n1,2,1\n2,3,5\n", "# id,label,f\n1,,.5\n2,a,1\n3,b,2\n"),
			nil,
			want{
				vertices: 3, edges: 2, weights: []float32{1, 5}, classes: 2,
				labels: []int32{-1, 0, 1}, says: []string{"target: target"},
			}},
		{"names in a comment over a word for none",
			tables("# source,target\na,b\na,c\n", "# id,label,f\na,NA,1\nb,0,5\nc,1,6\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{-1, 0, 1}, names: []string{"f"},
			}},
		{"names in a comment, and numbers for columns of the other table",
			tables("0,1\n1,2\n", "# id,f,label\n0,.5,1\n1,.25,0\n2,.1,1\n"),
			func(o *dataset.ImportOptions) {
				o.Table.Source, o.Table.Target, o.Ignore = "0", "1", []string{"7"}
			},
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{1, 0, 1}, names: []string{"f"},
			}},
		{"names after a colon, of too few columns",
			edges("# format: source target\n0 1 5\n1 2 5\n2 0 6\n"), nil,
			want{vertices: 3, edges: 3, says: []string{"0: source", "1: target"}}},
		{"names after a colon and a tab, of too few columns",
			edges("# columns:\tsource\ttarget\n0\t1\t5\n1\t2\t5\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"1: target"}}},
		{"names after a colon",
			edges("# columns: target, source\n0,1\n1,2\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"target: target"}}},
		{"names after a colon and a tab",
			edges("# columns:\ttarget\tsource\n0\t1\n1\t2\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"target: target"}}},
		{"a sentence with names of ends",
			edges("# from user to\n0 1 2\n1 2 0\n"), nil,
			want{fault: []string{
				"may name the columns or be a sentence",
				"--source and --target",
				"--no-header",
			}}},
		{"ends of a comment, by flags",
			edges("# from user to\n0 5 1\n1 5 2\n"), ends("from", "to"),
			want{vertices: 3, edges: 2}},
		{"a sentence with the name of an id",
			tables(path3, "# label of node\n0 .5 0\n1 .25 1\n2 .1 0\n"), nil,
			want{vertices: 3, edges: 2, features: []float32{.5, 0, .25, 1, .1, 0}}},
		{"an id behind a label in a comment",
			tables(path3, "# label node\n0 1\n1 0\n1 2\n"), nil,
			want{fault: []string{"# label node", "--id"}}},
		{"an index from 1 below a comment",
			tables("source,target\na,b\n", "# id,index,f\na,1,.5\nb,2,.7\nc,3,.1\n"), nil,
			want{vertices: 3, edges: 1, names: []string{"f"}}},
		{"several comments with names",
			edges("# target,source\n# by me, 2020\n1,2\n"), nil,
			want{vertices: 2, edges: 1, says: []string{"target: target"}}},
		{"a comment with names of words, and again",
			edges("# source,target\na,b\n# source,target\nb,c\n"), nil,
			want{
				vertices: 3, edges: 2, says: []string{"line 3 repeats the names"},
				silent: []string{"is read as a row"},
			}},
		{"a date after two words",
			edges("a1,b7,2019-01-01\na2,b8,2019-01-02\n"),
			func(o *dataset.ImportOptions) { o.Table.NoHeader = true },
			want{vertices: 4, edges: 2, says: []string{"2: time"}}},
		{"names that are vertices, too",
			edges("child,parent\nparent,thing\ncat,animal\n"), nil,
			want{fault: []string{"is this row the names of the columns, or data"}}},
		{"a class that is called as columns are",
			tables(path3, "# id,label\n0,y\n1,n\n2,y\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, labels: []int32{1, 0, 1}}},
		{"a comment over data",
			edges("# from,to\n0,1\n1,2\n"),
			func(o *dataset.ImportOptions) { o.Table.NoHeader = true },
			want{vertices: 3, edges: 2, says: []string{"skipped as a comment"}}},
		{"a title over the names",
			edges("Trade in 2019\nsource,target\nDE,FR\nFR,IT\n"), nil,
			want{fault: []string{
				`"Trade in 2019" is a row of one field, but the next rows have 2 fields`,
				"tail -n +2",
			}}},
		{"a count over the rows",
			edges("3\n0 1 0\n1 2 0\n2 0 1\n"), nil,
			want{fault: []string{`"3" is a row of one field, but the next rows have 3 fields`}}},
		{"attributes in braces",
			edges("1 3 {'a': 'b c'}\n1 4 {}\n"), nil,
			want{fault: []string{"line 1", "attributes in braces", "data=False"}}},
		{"lists of neighbours",
			edges("A,B\nB,A\nD,B,E\n"), nil,
			want{fault: []string{"line 3", "networkx.read_adjlist(FILE, delimiter=\",\")"}}},
		{"names that begin as a comment",
			edges("#node1\tnode2\tscore\nTP53\tMDM2\t.9\n"), nil,
			want{vertices: 2, edges: 1}},
		{"a pair after row numbers",
			edges("\"\",startNode,endNode\n1,12,13\n2,13,14\n"), nil,
			want{
				vertices: 3, edges: 2, says: []string{"startNode: source (its names are a pair)"},
			}},
		// times and weights
		{"times that are called so in part",
			edges("source,target,creationDate,block_timestamp,seen_at,format\n" +
				"a,b,1,2,2019-01-31 10:00,4\n"),
			nil,
			want{vertices: 2, edges: 1, says: []string{
				"creationDate: time",
				"block_timestamp: time",
				"seen_at: time",
				"format: ignored",
			}}},
		{"times without names",
			edges("9 8 3 1254192988\n1 1 2 1254194656\n"), nil,
			want{vertices: 3, edges: 1, says: []string{
				"3: time, not used",
				"if it is the weight of an edge, --weight 2 reads it",
			}}},
		{"dates, and numbers that are none",
			edges("source,target,a,b,c\nx,y,2012/01/31 10:00,1254192988,2012\n"), nil,
			want{
				vertices: 2, edges: 1,
				says: []string{"a: time", "b: time", "it seems to be a time", "c: ignored"},
			}},
		{"names with the words of times, and values that are none",
			edges("source,target,works_at,travel_time,full time,ts_score,born_year\n" +
				"a,b,Ulm,12.5,3,7,1987\n" +
				"b,c,Bonn,3,4,8,1990\n"),
			nil,
			want{
				vertices: 3, edges: 2,
				says: []string{
					"works_at: ignored",
					"ts_score: ignored",
					"full time: ignored",
					"born_year: time",
				},
				silent: []string{"travel_time: time"},
			}},
		{"one number of many that would be a time",
			edges("a b 1254192988\nb a 5\na c 7\n"), nil,
			want{vertices: 3, edges: 3, silent: []string{"future"}}},
		{"weights with a decimal comma",
			edges("a\tb\t0,5\nb\tc\t1,5\n"), nil,
			want{
				vertices: 3, edges: 2,
				says: []string{"write a point in place of its decimal comma and give --weight 2"},
			}},
		{"a time that is empty",
			edges("Source,Target,timeset\n0,1,\n1,2,\n"), nil,
			want{
				vertices: 3, edges: 2, says: []string{"column timeset of edges.csv is not read"},
				silent: []string{"future"},
			}},
		{"milliseconds without names",
			edges("1\t2\t1254192988000\n2\t3\t1254192988001\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"2: time"}}},
		{"seconds as weights",
			edges("a,b,t\n1,2,1600000000\n2,3,1600000900\n"), weighted("a", "b", "t"),
			want{vertices: 3, edges: 2, weights: []float32{1600000000, 1600000900}, says: []string{
				"t: weight (it seems to be a time)",
				"column t of edges.csv is read as weight, and seems to be a time",
				"reads edges from its future",
			}}},
		{"dates as features of edges",
			edges("src,dst,sent,n\n1,2,20200131,5\n2,3,20200201,6\n"),
			func(o *dataset.ImportOptions) { o.Table.EdgeFeatures = []string{"n", "sent"} },
			want{
				vertices: 3, edges: 2,
				says: []string{"sent: edge feature (it seems to be a time)", "n: edge feature\n"},
			}},
		{"micro- and nanoseconds",
			edges("src,dst,a,b,c\n1,2,1600000000000000,1600000000000000000,123456789012\n"), nil,
			want{
				vertices: 2, edges: 1,
				says: []string{"a: time, not used", "b: time, not used", "c: ignored"},
			}},
		{"a time as a feature",
			tables(path3, "id,joined,f\n0,1600000000,1\n1,1600000100,2\n2,1600000000,3\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"joined", "f"},
				says: []string{"joined: feature (it seems to be a time)", "f: feature\n"},
			}},
		{"dates as people write them",
			edges("src,dst,a,b,c\n1,2,31.12.2020,12/31/2020,3.14.2020.5\n"), nil,
			want{vertices: 2, edges: 1, says: []string{"a: time", "b: time", "c: ignored"}}},
		{"weights below 0",
			edges("0 1 1\n0 2 -1\n"), weighted("0", "1", "2"),
			want{fault: []string{"line 2", "weight -1", "without --weight"}}},
		{"several graphs",
			tables(path3, "graph_id,node_id\n0,0\n0,1\n1,0\n"), nil,
			want{fault: []string{"column graph_id", "many graphs"}}},
		{"ids that are the same number",
			tables("from,to\n100000,200000\n", "id,f\n1e+05,1\n2e+05,2\n"), nil,
			want{fault: []string{`vertex "100000"`, "nodes.csv calls it 1e+05"}}},
		{"ids that differ in capitals",
			tables("from,to\nbob,Ann\n", "id,f\nBob,1\nAnn,2\n"), nil,
			want{fault: []string{`nodes.csv has "Bob", which differs from it in capitals`}}},
		{"a name with a blank",
			tables(path3, "id,home town\n0,Ulm\n1,Jena\n2,Bonn\n"), nil,
			want{fault: []string{"--ignore 'home town'", "--label 'home town'"}}},
		{"a split without training vertices",
			tables(path3, "id,f,label,split\n0,1,a,test\n1,1,b,valid\n2,2,a,\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, says: []string{
				"no vertex will be trained on: the training list of the split (column split of " +
					"nodes.csv",
			}}},
		{"labels that begin with 0, and none",
			tables(path3, "id,label\n0,01\n1,-1\n2,02\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{0, -1, 1},
				says: []string{`labels "-1" (1) are taken to mean`},
			}},
		{"labels with and without a 0",
			tables(path3, "id,label\n0,01\n1,1\n2,12\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 3, labels: []int32{0, 1, 2},
				says: []string{`labels "01" and "1" are two classes`},
			}},
		{"labels that begin with 0, below 0",
			tables(path3, "id,label\n0,01\n1,-2\n2,12\n"), nil,
			want{fault: []string{`line 3: column label: vertex "1" has label -2`}}},
		{"labels that begin with 0",
			tables(path3, "id,label\n0,02\n1,01\n2,02\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{1, 0, 1},
				silent: []string{"classes 1, 2 of the source"},
			}},
		{"labels with zeros behind a point",
			tables(path3, "id,label\n0,1.00\n1,0.00\n2,1.00\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, labels: []int32{1, 0, 1}}},
		{"labels below 1",
			tables(path3, "id,label\n0,0.05\n1,0.07\n2,0.05\n"), nil,
			want{fault: []string{"want a class", "--task regression"}}},
		{"a feature that is called as ids are",
			tables(path3, "id,facebook_id,f\n0,7,1\n1,8,2\n2,9,1\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"facebook_id", "f"}, says: []string{
				"column facebook_id of nodes.csv is a feature, but has a name of ids: --ignore " +
					"facebook_id",
			}}},
		{"coordinates that are integers",
			tables(path3, "id,x,y\n0,5,1\n1,6,2\n2,7,1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2,
				says: []string{"column y of nodes.csv is the label; if it is a coordinate, as x"},
			}},
		{"coordinates",
			tables(path3, "osmid,y,x\n0,52.5,1\n1,52.25,2\n2,52.75,1\n"), nil,
			want{fault: []string{
				`line 2: column y: vertex "0" has label 52.5`,
				"--ignore y leaves the column out, and --features x,y",
			}}},
		{"coordinates that are features",
			tables(path3, "osmid,y,x\n0,52.5,1\n1,52.25,2\n2,52.75,1\n"), features("x", "y"),
			want{
				vertices: 3, edges: 2, names: []string{"x", "y"},
				features: []float32{1, 52.5, 2, 52.25, 1, 52.75},
			}},
		{"several labels in a field",
			tables(path3, "id,label\n0,1;2\n1,2\n2,1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 3,
				says: []string{`class "1;2" seems to be several labels`, `get_dummies(";")`},
			}},
		{"several words in a field",
			tables(path3, "id,label\n0,red|blue\n1,blue\n2,red\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 3,
				says: []string{`class "red|blue" seems to be several labels`, `get_dummies("|")`},
			}},
		{"nodes without ids",
			tables(path3, "f0,f1,label\n0.5,0.1,a\n0.6,0.2,b\n0.3,0.2,a\n"), nil,
			want{fault: []string{
				`vertex "0"`,
				"in column f0",
				"the rows are vertices 0, 1, ... in their order",
			}}},
		{"nodes without ids or names that differ",
			tables(path3, "0.5 0.1\n0.6 0.2\n0.3 0.2\n"), nil,
			want{fault: []string{
				`vertex "0"`,
				"in column 0, which is the id",
				"the rows are vertices 0, 1, ... in their order",
			}}},
		{"nodes without ids or names",
			tables(path3, "0.5 0.1\n0.5 0.2\n0.3 0.2\n"), nil,
			want{fault: []string{
				`vertex "0.5" comes twice`,
				"the rows are vertices 0, 1, ... in their order",
			}}},
		{"a Pajek file",
			edges("*Vertices 2\n1 \"a\"\n2 \"b\"\n*Edges\n1 2\n"), nil,
			want{fault: []string{"a Pajek file"}}},
		{"a GML file",
			edges("graph [\n node [\n id 0\n ]\n]\n"), nil,
			want{fault: []string{"a GML file"}}},
		{"features in a text file",
			tables(path3, "id,f\n0,1\n1,2\n2,3\n", "x.csv", "1,2\n3,4\n5,6\n"),
			func(o *dataset.ImportOptions) {
				o.Table.Features = []string{filepath.Join(o.In, "x.csv")}
			},
			want{fault: []string{"x.csv: a file with rows of features must be a .npy file"}}},
		{"labels as JSON",
			tables(path3, "id,f\n0,1\n1,2\n2,3\n", "y.json", "{\"0\": 1}\n"),
			func(o *dataset.ImportOptions) {
				o.Table.Labels = []string{filepath.Join(o.In, "y.json")}
			},
			want{fault: []string{"--label", "y.json", "labels must be a .npy or text file"}}},
		{"a split of PyTorch",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n", "s.pt", "PK"), splitFile("s.pt"),
			want{fault: []string{"s.pt", "numpy.savez"}}},
		{"a split of text files",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n",
				"s/train.txt", "2\n", "s/valid.txt", "0\n", "s/test.txt", "1\n"),
			splitFile("s"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{2}, {0}, {1}}}},
		{"a split of text files of words",
			tables("source,target\na b,007\n", "id,label\na b,p\n007,q\nc,p\n",
				"s/train.txt", "train\na b\n",
				"s/val.txt", "# one\n007\n",
				"s/test.txt", "c\n"),
			splitFile("s"),
			want{vertices: 3, edges: 1, classes: 2, split: [3]ids{{0}, {1}, {2}}}},
		{"a split with a word that is no id",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n",
				"s/train.txt", "0\nann\n", "s/dev.txt", "1\n", "s/test.txt", "2\n"),
			splitFile("s"),
			want{fault: []string{`train.txt: line 2: vertex "ann"`}}},
		{"a split without a list",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n", "s/train.txt", "0\n"), splitFile("s"),
			want{fault: []string{"must have one of valid.txt, val.txt, dev.txt, plain or as .gz"}}},
		{"a split of no files",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n", "s/a.dat", "2\n"), splitFile("s"),
			want{fault: []string{"it holds a.dat"}}},
		{"a table of a split with other columns",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n",
				"s.csv", "f;usage;node;split\n"+
					".5;test;2;train set\n"+
					".7;train;1;\n"+
					".6;train;0;Testset\n"),
			splitFile("s.csv"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{2}, nil, {0}}}},
		{"a table of masks",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n",
				"s.csv", "id,train,val,test\n2,1,0,0\n1,0,1,0\n0,0,0,1\n"),
			splitFile("s.csv"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{2}, {1}, {0}}}},
		{"a table of masks that hold something else",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n", "s.csv", "id,train,val\n2,1,7\n"),
			splitFile("s.csv"),
			want{fault: []string{"s.csv: line 2", `val holds "7"`}}},
		{"a table of a split without its names",
			tables(path3, "id,label\n0,a\n1,b\n2,a\n", "s.csv", "id,f,g\n2,1,0\n1,0,1\n"),
			splitFile("s.csv"),
			want{fault: []string{"s.csv", "3 columns", "id and split"}}},
		{"a DOT file",
			edges("digraph G {\n a -> b;\n}\n"), nil,
			want{fault: []string{"a DOT file", "read_dot"}}},
		// columns that tools write
		{"row numbers without a name",
			tables(path3, ",id,f\n0,0,1\n1,1,2\n2,2,3\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"f"},
				says: []string{"column 0, without a name, of nodes.csv is not read"},
			}},
		{"row numbers of pandas",
			tables(path3, "Unnamed: 0,id,f\n0,0,1\n1,1,2\n2,2,3\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"f"},
				says: []string{"Unnamed: 0: ignored (an index"},
			}},
		{"row numbers called index",
			tables(path3, "id,index,f\n0,0,1\n1,1,2\n2,2,3\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"f"}}},
		{"an index is the id where nothing else is",
			tables(path3, ",f,g\n0,0,1\n1,1,2\n2,2,3\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"f", "g"},
				says: []string{"the first column, for none is called id"},
			}},
		{"words after an index are the id",
			tables("source,target\nann,bob\n", "Unnamed: 0,user,age\n0,ann,1\n1,bob,2\n"), nil,
			want{
				vertices: 2, edges: 1, names: []string{"age"},
				says: []string{"user: id (the first column after an index"},
			}},
		{"an index as a feature, if asked for",
			tables(path3, "id,index\n0,0\n1,1\n2,2\n"), features("index"),
			want{vertices: 3, edges: 2, names: []string{"index"}}},
		{"an empty column",
			tables(path3, "Id,timeset,f\n0,,1\n1,,2\n2,,3\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"f"}, says: []string{
				"timeset: ignored (empty)",
				"timeset of nodes.csv is not read: it is empty",
			}}},
		{"an empty column that is named",
			tables(path3, "id,g,f\n0,,1\n1,,2\n2,,3\n"), features("g"),
			want{fault: []string{"line 2", "column g is empty"}}},
		{"several columns of words",
			tables(path3,
				"id,f,city,born,land\n"+
					"0,1,Ulm,2000-01-02,D\n"+
					"1,1,Jena,2001-01-02,D\n"+
					"2,1,Bonn,2002-01-02,D\n"),
			nil,
			want{fault: []string{
				`line 2: `,
				`city holds "Ulm"`,
				"and neither are the values of born, land",
				"--ignore city,born,land",
				"--label land",
			}}},
		{"a list in a field",
			tables(path3, "id,f\n0,\"[0.5, 1, 2]\"\n1,x\n2,x\n"), nil,
			want{fault: []string{"line 2", "a list of 3 numbers", "give each a column"}}},
		{"a list or a decimal comma",
			tables(path3, "id,f\n0,\"12,5\"\n1,x\n2,x\n"), nil,
			want{fault: []string{"decimal comma", "if it is a list"}}},
		{"commas between thousands",
			tables(path3, "id,f\n0,\"610,086\"\n1,x\n2,x\n"), nil,
			want{fault: []string{"between thousands"}}},
		{"another word for nothing",
			tables(path3, "id,f\n0,1\n1,<NA>\n2,1\n"), nil,
			want{fault: []string{"line 3", `column f holds "<NA>"`, "fill it in"}}},
		{"a number with a currency or percent sign",
			tables(path3, "id,f\n0,12.5%\n1,3%\n2,1%\n"), nil,
			want{fault: []string{"line 2", "leave the sign out"}}},
		{"rows that end with a separator",
			tables("source,target,\n0,1,\n1,2,\n", "id;f;\n0;5;\n1;6;\n2;7;\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"f"},
				says: []string{"2, without a name,: ignored (empty)"},
			}},
		{"dates beside words",
			tables(path3, "id,team,born\n0,red,2000-01-02\n1,x,2001-01-02\n2,y,2001-01-02\n"), nil,
			want{fault: []string{"--ignore team,born", "--label team"}}},
		{"a label of edges of Gephi",
			edges("Source,Target,Label\n0,1,a\n"), nil,
			want{vertices: 2, edges: 1, says: []string{
				"Label: ignored (names for display)",
				"--link-classes Label predicts them",
			}}},
		{"a label of edges",
			edges("source,target,label\n0,1,a\n1,2,b\n"), nil,
			want{vertices: 3, edges: 2, says: []string{
				"column label of edges.csv is not read; --task links --link-classes label",
			}}},
		{"a point for nothing",
			tables(path3, "id,f\n0,1\n1,.\n2,1\n"), nil,
			want{fault: []string{"line 3", `column f holds "."`, "fill it in"}}},
		{"a fold and splits",
			tables(path3, "id,fold,split_0,f\n0,0,1,5\n1,1,0,6\n2,2,0,7\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"f"},
				says: []string{
					"column fold of nodes.csv is not read",
					"split_0: ignored (it seems to be a split",
					"turn it into a column of train, valid, test",
				},
				silent: []string{"--split-column"},
			}},
		// masks
		{"other words of a split",
			tables(path3, "id,y,split\n0,a,Training\n1,b,dev\n2,a,testing\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0}, {1}, {2}}}},
		{"masks of words",
			tables(path3,
				"id,y,train_mask,val_mask,test_mask\n"+
					"0,a,True,False,False\n"+
					"1,b,False,True,False\n"+
					"2,a,False,False,True\n"),
			nil,
			want{
				vertices: 3, edges: 2, classes: 2, split: [3]ids{{0}, {1}, {2}},
				says: []string{"columns train_mask, val_mask, test_mask of nodes.csv"},
			}},
		{"masks of 0 and 1",
			tables(path3, "id,y,train,test\n0,a,1,0\n1,b,1,0\n2,a,0,1\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0, 1}, nil, {2}}}},
		{"numbers called as masks",
			tables(path3, "id,y,train,test\n0,a,1,7\n1,b,1,.5\n2,a,0,1\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, names: []string{"train", "test"}}},
		{"a mask of other words",
			tables(path3, "id,y,train_mask\n0,a,maybe\n1,b,1\n2,a,1\n"), nil,
			want{
				fault: []string{"line 2", `column train_mask holds "maybe"`, "--ignore train_mask"},
			}},
		{"masks beside a column of the split",
			tables(path3, "id,y,split,train_mask\n0,a,train,1\n1,b,test,1\n2,a,test,0\n"), nil,
			want{fault: []string{"column split, or train_mask", "--ignore"}}},
		{"masks where features are named",
			tables(path3, "id,b,train,a\n0,1,5,2\n1,3,6,4\n2,5,7,6\n"), features("b", "a"),
			want{
				vertices: 3, edges: 2, names: []string{"b", "a"},
				features: []float32{1, 2, 3, 4, 5, 6},
			}},
		{"numbers called as masks, both 1",
			tables(path3, "id,y,train,test\n0,a,1,1\n1,b,1,0\n2,a,0,1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, names: []string{"train", "test"},
				says: []string{
					`columns train and test of nodes.csv are not a split, because both mark ` +
						`vertex "0"`,
				},
			}},
		{"masks that overlap",
			tables(path3, "id,y,train_mask,test_mask\n0,a,1,1\n1,b,1,0\n2,a,0,1\n"), nil,
			want{
				fault: []string{`columns train_mask and test_mask both mark vertex "0"`, "--split"},
			}},
		{"masks beside --split",
			tables(path3, "id,y,train_mask,test_mask\n0,a,1,1\n1,b,x,0\n2,a,0,1\n"),
			split("34/33/33"),
			want{
				vertices: 3, edges: 2, classes: 2,
				says: []string{"train_mask: ignored (--split gives the split)"},
			}},
		{"a split under another name",
			tables(path3, "id,usage,f,y\n0,train,1,a\n1,Test,2,b\n2,dev,3,a\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, names: []string{"f"},
				split: [3]ids{{0}, {2}, {1}},
				says: []string{
					"usage: split (its words are those of a split)",
					"column usage of nodes.csv",
				},
			}},
		{"folds that are words of a split",
			tables(path3, "id,y,fold\n0,a,train\n1,b,\n2,a,test\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, split: [3]ids{{0}, nil, {2}},
				silent: []string{"fold of nodes.csv is not read"},
			}},
		{"a split under another name, with another word",
			tables(path3, "id,usage\n0,train\n1,holdout\n2,test\n"), nil,
			want{fault: []string{
				"line 2",
				"column usage",
				"if it is the split, write train, valid and test",
				`(line 3 has "holdout", which is none of these)`,
				"--split-column usage",
			}}},
		{"words of which one is of a split",
			tables(path3, "id,goes by\n0,train\n1,train\n2,train\n"), nil,
			want{fault: []string{
				"line 2: bad value: column goes by",
				"name the feature columns",
				"--ignore 'goes by'",
			}}},
		{"two columns with the words of a split",
			tables(path3, "id,y,phase,part\n0,a,train,train\n1,b,test,valid\n2,a,test,test\n"), nil,
			want{fault: []string{"the split could be column part, or phase", "--split-column"}}},
		{"two columns with the words of a split, one by a flag",
			tables(path3, "id,y,phase,part\n0,a,test,train\n1,b,train,valid\n2,a,train,test\n"),
			func(o *dataset.ImportOptions) { o.Table.Split = "phase"; o.Ignore = []string{"part"} },
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{1, 2}, nil, {0}}}},
		{"a split under another name beside --split",
			tables(path3, "id,y,phase\n0,a,train\n1,b,test\n2,a,test\n"), split("34/33/33"),
			want{
				vertices: 3, edges: 2, classes: 2,
				says: []string{"phase: ignored (--split gives the split)"},
			}},
		{"codes of a split",
			tables(path3, "id,f,mask,y\n0,1,0,a\n1,2,1,b\n2,3,2,a\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, names: []string{"f"}, says: []string{
				"mask: ignored (it seems to be a split)",
				"column mask of nodes.csv is not read: it holds 0, 1, 2",
				"--split-column mask reads 0 as train, 1 as valid and 2 as test",
			}}},
		{"codes of a split with a point",
			tables(path3, "id,f,split_id,y\n0,1,0.0,a\n1,2,,b\n2,3,2.0,a\n"),
			func(o *dataset.ImportOptions) { o.Table.Split = "split_id" },
			want{
				vertices: 3, edges: 2, classes: 2, names: []string{"f"},
				split: [3]ids{{0}, nil, {2}},
				says:  []string{"split_id: split (0 is train, 1 valid, 2 test)"},
			}},
		{"marks in a column of no list",
			tables(path3, "id,f,nodeMask\n0,1,True\n1,2,False\n2,3,True\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"f", "nodeMask"}, says: []string{
				"nodeMask of nodes.csv is a feature; if it marks the vertices to train, call it " +
					"train_mask",
			}}},
		{"features with a word of splits",
			tables(path3,
				"id,wears_mask,mask_type,split_count,splits,train_test_gap\n"+
					"0,1,1,2,0,0\n"+
					"1,0,0,3,0,1\n"+
					"2,1,2,4,1,2\n"),
			nil,
			want{
				vertices: 3, edges: 2,
				names: []string{
					"wears_mask", "mask_type", "split_count", "splits", "train_test_gap",
				},
				says: []string{
					"column wears_mask of nodes.csv is a feature; if it marks",
					"--split-column mask_type makes it the split",
				},
			}},
		{"masks without one to train",
			tables(path3, "id,y,valid_flag,test_flag\n0,a,1,0\n1,b,0,1\n2,a,0,0\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, names: []string{"valid_flag", "test_flag"}}},
		{"words of a split without one to train",
			tables(path3, "id,y,environment\n0,a,dev\n1,b,test\n2,a,dev\n"), nil,
			want{fault: []string{"line 2", "column environment", "--ignore environment"}}},
		{"words of a split where features are named",
			tables(path3, "id,y,f,phase\n0,a,1,train\n1,b,2,test\n2,a,3,test\n"), features("f"),
			want{vertices: 3, edges: 2, classes: 2, says: []string{
				"phase: ignored",
				"--split-column phase makes it the split",
				"shuffled 60/20/20",
			}}},
		{"words of a split without labels",
			tables(path3, "id,f,phase\n0,1,train\n1,2,test\n2,3,test\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"f"}, says: []string{
				"phase: ignored (its words are those of a split, and there are no labels)",
			}}},
		{"other codes of a split",
			tables(path3, "id,f,train_test\n0,1,1\n1,2,2\n2,3,3\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"f"},
				says: []string{"make a column of train, valid, test"},
			}},
		{"codes that may be a split",
			tables(path3, "id,phase\n0,0\n1,1\n2,2\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"phase"},
				says: []string{"--split-column phase makes it the split"},
			}},
		{"numbers called as a split",
			tables(path3, "id,split_ratio,phase\n0,0.5,7\n1,0.25,1\n2,1,0\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"split_ratio", "phase"},
				silent: []string{"--split-column"},
			}},
		{"codes in a mask of one list",
			tables(path3, "id,y,train_mask\n0,a,0\n1,b,1\n2,a,2\n"), nil,
			want{fault: []string{
				"line 4",
				`train_mask holds "2"`,
				"--split-column train_mask reads it",
			}}},
		{"words of the split in a mask of one list",
			tables(path3, "id,y,train_mask\n0,a,train\n1,b,test\n2,a,val\n"), nil,
			want{fault: []string{
				"line 3",
				`train_mask holds "test"`,
				"--split-column train_mask reads it",
			}}},
		{"marks of one list as the split",
			tables(path3, "id,y,is_train\n0,a,0\n1,b,1\n2,a,0\n"),
			func(o *dataset.ImportOptions) { o.Table.Split = "is_train" },
			want{fault: []string{
				"--split-column names column is_train, but this column marks the vertices",
				"rename it train_mask, and leave out --split-column",
			}}},
		{"codes of two lists",
			tables(path3, "id,y,split\n0,a,0\n1,b,1\n2,a,0\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, split: [3]ids{{0, 2}, {1}, nil},
				says: []string{"holds only 0 and 1, which are taken as train and valid"},
			}},
		{"marks for a split",
			tables(path3, "id,y,split\n0,a,True\n1,b,False\n2,a,True\n"), nil,
			want{fault: []string{"line 2", `split holds "True"`, "call it train_mask"}}},
		{"short words under the name of a split",
			tables(path3, "id,y,usage\n0,a,tr\n1,b,VA\n2,a,test set\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0}, {1}, {2}}}},
		{"marks that may be of a split",
			tables(path3, "id,y,x_train,train/test\n0,a,1,0\n1,b,0,1\n2,a,1,0\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, names: []string{"x_train"}, says: []string{
				"column x_train of nodes.csv is a feature; if it marks the vertices to train, " +
					"call it train_mask",
				"train/test: ignored",
			}}},
		{"masks called as flags",
			tables(path3, "id,y,train_flag,test_flag\n0,a,1,0\n1,b,0,1\n2,a,1,0\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0, 2}, nil, {1}}}},
		{"numbers called as a mask of bits",
			tables(path3, "id,bitmask\n0,1\n1,77\n2,3\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"bitmask"}}},
		{"masks of crosses",
			tables(path3, "id,y,tr_mask,va_mask,te_mask\n0,a,x,,\n1,b,,x,\n2,a,,,x\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0}, {1}, {2}}}},
		{"a word of a split in a first row of data",
			tables(path3, "0,.5,train\n1,.25,test\n2,.5,valid\n"),
			func(o *dataset.ImportOptions) { o.Table.Split = "2" },
			want{
				vertices: 3, edges: 2, features: []float32{.5, .25, .5}, says: []string{"2: split"},
			}},
		{"masks of their own words, in capitals",
			tables(path3, "id,y,trainMask,Mask_Val,is-test\n0,a,train,,\n1,b,,VAL,\n2,a,,,1\n"),
			nil,
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0}, {1}, {2}}}},
		{"--split id,train",
			tables(path3, "id,y\n0,a\n1,b\n2,a\n", "s.csv", "id,train\n0,1\n1,0\n2,1\n"),
			splitFile("s.csv"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0, 2}, nil, nil}}},
		{"--split test,id",
			tables(path3, "id,y\n0,a\n1,b\n2,a\n", "s.csv", "test,id\n1,0\n0,1\n0,2\n"),
			splitFile("s.csv"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{nil, nil, {0}}}},
		{"--split who,train_mask",
			tables(path3, "id,y\n0,a\n1,b\n2,a\n", "s.csv", "who,train_mask\n0,1\n1,0\n2,1\n"),
			splitFile("s.csv"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{0, 2}, nil, nil}}},
		{"--split id,is_val",
			tables(path3, "id,y\n0,a\n1,b\n2,a\n", "s.csv", "id,is_val\n0,1\n1,0\n2,1\n"),
			splitFile("s.csv"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{nil, {0, 2}, nil}}},
		{"--split id,part",
			tables(path3, "id,y\n0,a\n1,b\n2,a\n", "s.csv", "id,part\n0,1\n1,0\n2,1\n"),
			splitFile("s.csv"),
			want{vertices: 3, edges: 2, classes: 2, split: [3]ids{{1}, {0, 2}, nil}}},
		{"a feature called index",
			tables(path3, "id,index\n0,5\n1,3\n2,4\n"), nil,
			want{vertices: 3, edges: 2, names: []string{"index"}}},
		{"ids with leading zeros",
			edges("source,target\n01001,48201\n48201,01003\n"), nil,
			want{
				vertices: 3, edges: 2,
				says: []string{`2 of 3 ids are not integers, such as "01001"`},
			}},
		{"number-named columns",
			tables("source,target\np1,p2\n", "paper,2018,2020\np1,3,4\np2,5,6\n"), nil,
			want{vertices: 2, edges: 1, names: []string{"2018", "2020"}}},
		{"names of columns, by a flag",
			edges("gene1,gene2\ngene5,gene7\n"),
			func(o *dataset.ImportOptions) {
				o.Table.Header, o.Table.Source, o.Table.Target = true, "gene1", "gene2"
			},
			want{vertices: 2, edges: 1}},
		{"SNAP's names of columns",
			edges("# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n"), nil,
			want{vertices: 3, edges: 2}},
		{"a comma beside semicolons",
			edges("c1;10,c2;20\nc2;20,c3;5\n"), nil,
			want{
				vertices: 3, edges: 2,
				says: []string{"fields are separated by ',', although ';' would fit too"},
			}},
		{"classes of more than 32 bits",
			tables(path3, "id,y\n0,1\n1,5000000000\n2,1\n"), nil,
			want{vertices: 3, edges: 2, classes: 2, says: []string{"more than 32 bits"}}},
		// Gephi
		{"directions of Gephi",
			edges("Source,Target,Type,Id,Label,Weight\nA,B,Undirected,0,,3\nB,C,Undirected,1,,2\n"),
			nil,
			want{
				vertices: 3, edges: 4, weights: []float32{3, 3, 2, 2},
				says: []string{"Type: direction (0 directed, 2 undirected)"},
			}},
		{"both directions",
			edges("Source,Target,Type,Weight\nA,B,Undirected,3\nB,C,Directed,2\n"), nil,
			want{
				vertices: 3, edges: 3, weights: []float32{3, 3, 2},
				says: []string{"1 edges are undirected, as column Type says"},
			}},
		{"names for display",
			tables(path3, "Id,Label\n0,Ann\n1,Bob\n2,Cid\n"), nil,
			want{vertices: 3, edges: 2, says: []string{"--label Label makes classes of them"}}},
		{"names for display as classes, if asked for",
			tables(path3, "Id,Label\n0,Ann\n1,Bob\n2,Ann\n"), labels("Label"),
			want{vertices: 3, edges: 2, classes: 2}},
		{"names for display beside a label",
			tables(path3, "Id,Label,kind\n0,Ann,x\n1,Bob,y\n2,Cid,x\n"), labels("kind"),
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{0, 1, 0},
				says: []string{"Label: ignored (names for display)"},
			}},
		{"two columns of labels",
			tables(path3, "id,label,class\n0,a,1\n1,b,2\n2,a,1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, names: []string{"class"},
				says: []string{"could all be the label; label is taken"},
			}},
		{"two columns of labels, one of them words",
			tables(path3, "id,label,class\n0,1,a\n1,2,b\n2,1,a\n"), nil,
			want{fault: []string{
				"line 2",
				"columns label, class could all be the label; label is taken",
				"--label class",
				"--ignore",
			}}},
		{"two columns of labels, one of them empty in a row",
			tables(path3, "id,label,class\n0,1,5\n1,2,\n2,1,6\n"), nil,
			want{fault: []string{"line 3", "columns label, class could all be the label"}}},
		{"a label of Gephi beside another",
			tables(path3, "Id,Label,class\n0,Ann,1\n1,Bob,0\n2,Cid,1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{1, 0, 1},
				says: []string{"Label: ignored (names for display)"},
			}},
		{"classes in a label of Gephi beside measurements",
			tables(path3, "Id,Label,target\n0,cat,0.5\n1,dog,1.5\n2,cat,1\n3,dog,2\n"), nil,
			want{
				vertices: 4, edges: 2, classes: 2, labels: []int32{0, 1, 0, 1},
				names: []string{"target"},
			}},
		{"classes in a label of Gephi beside coordinates",
			tables(path3, "Id,Label,x,y\n0,cat,3,1\n1,dog,1,4\n2,cat,1,5\n3,dog,2,6\n"), nil,
			want{
				vertices: 4, edges: 2, classes: 2, labels: []int32{0, 1, 0, 1},
				names: []string{"x", "y"},
			}},
		{"names for display beside measurements",
			tables(path3, "Id,Label,target\n0,Ann,0.5\n1,Bob,1.5\n2,Cid,1\n"), nil,
			want{
				vertices: 3, edges: 2, names: []string{"target"},
				says: []string{"Label: ignored (names for display)"},
			}},
		{"two columns of labels, one by a flag",
			tables(path3, "id,label,class\n0,1,a\n1,2,b\n2,1,a\n"), labels("class"),
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{0, 1, 0},
				names: []string{"label"},
			}},
		{"ends of any names", tables("who,whom\nann,bob\nbob,cid\n", people), nil, endless},
		{"an edge of vertices that are missing",
			tables("u9,u8\nu1,u2\nu2,u3\n", "id,f\nu1,1\nu2,2\nu3,3\n"), nil,
			want{fault: []string{"edges.csv: line 1", "--header", "--no-header"}}},
		{"one end of any name, the other by a flag",
			tables("who,whom\nann,bob\nbob,cid\n", people),
			func(o *dataset.ImportOptions) { o.Table.Target = "who" },
			want{
				vertices: 3, edges: 2,
				says: []string{"who: target", "whom: source (one of the two columns"},
			}},
		{"one end of any name, the other of a usual one",
			tables("target,who\nann,bob\nbob,cid\n", people), nil,
			want{vertices: 3, edges: 2, says: []string{"who: source (one of the two columns"}}},
		{"a source beside numbers",
			tables("user,rating\n0,1\n1,2\n", "id,f\n0,1\n1,2\n2,3\n"),
			func(o *dataset.ImportOptions) { o.Table.Source = "user" },
			endless},
		{"an end beside what --ignore leaves out",
			tables("source,who\nann,bob\nbob,cid\n", people), ignore("who"),
			endless},
		{"an end beside a time, by its name",
			tables("source,day\nann,bob\nbob,cid\n", people), nil,
			endless},
		{"names that are vertices, too, and a weight",
			tables("0,1,weight\n1,2,5.5\n", "id,f\n0,1\n1,2\n2,3\n"), nil,
			want{vertices: 3, edges: 1, says: []string{"weight: weight"}}},
		{"names that are vertices, too, and a word over numbers",
			tables("0,1,score\n1,2,5.5\n", "id,f\n0,1\n1,2\n2,3\n"), nil,
			want{fault: []string{"edges.csv: line 1", "--header", "--no-header"}}},
		{"names that are vertices, too, by --header",
			tables("ann,bob\nbob,cid\n", people),
			func(o *dataset.ImportOptions) {
				o.Table.Header, o.Table.Source, o.Table.Target = true, "ann", "bob"
			},
			want{vertices: 3, edges: 1, says: []string{"ann: source"}}},
		{"names that are vertices, too, and columns that flags name",
			tables("ann,bob,x,z\n1,2,ann,bob\n", people), ends("x", "z"),
			want{vertices: 3, edges: 1, says: []string{"x: source"}}},
		{"times as features",
			tables(path3, "id,born_at,seen_date\n0,1999,3\n1,2001,4\n2,2003,5\n"), nil,
			want{vertices: 3, edges: 2, says: []string{
				"born_at: feature (it seems to be a time)",
				"features of nodes.csv that seem to be times, of which float32 keeps 7 digits: " +
					"born_at, seen_date",
			}}},
		{"a version that is no date",
			edges("source,target,release\n1,2,10.10.2020.1\n"), nil,
			want{
				vertices: 2, edges: 1, says: []string{"release: ignored"},
				silent: []string{"seems to be"},
			}},
		{"a date for a weight",
			edges("source,target,at\n1,2,2020-01-02\n"),
			func(o *dataset.ImportOptions) { o.Table.Weight = "at" },
			want{fault: []string{"line 2", "it seems to be a time"}}},
		{"a date for a feature",
			tables(path3, "id,born\n0,2020-01-02\n1,2021-01-02\n2,2020-05-02\n"), nil,
			want{fault: []string{
				"line 2",
				"it seems to be a time; turn it into a number",
				"--ignore born",
			}}},
		{"two names of a vertex",
			edges("source_name,target_name,source_id,target_id\nann,bob,0,1\n"), nil,
			want{
				vertices: 2, edges: 1,
				says: []string{"source_id: source (rather than source_name and target_name"},
			}},
		{"other columns that are no ends",
			edges("src,dst,f1,f2,start_time,end_time\n0,1,5,6,7,8\n"), nil,
			want{vertices: 2, edges: 1, silent: []string{"rather than"}}},
		{"edges whose first row has vertices",
			tables("ann,bob\nbob,cid\n", "id,f\nann,1\nbob,2\ncid,3\n"), nil,
			want{vertices: 3, edges: 2, says: []string{
				"edges.csv: the first row: data (both ends have a row in nodes.csv)",
			}}},
		{"edges whose first row has no vertices",
			tables("gene1,gene2\ngene5,gene7\n", "id,f\ngene5,1\ngene7,2\n"), nil,
			want{vertices: 2, edges: 1, says: []string{
				"edges.csv: the first row: names of the columns (it names no vertex of nodes.csv",
			}}},
		{"edges whose first row has a vertex",
			tables("gene1,gene5\ngene5,gene7\n", "id,f\ngene5,1\ngene7,2\n"), nil,
			want{fault: []string{"gene1", "has no row"}}},
		{"columns of edges that pandas numbered",
			tables("0,1,2,3\n1,2,5,6\n", "id,f\n0,1\n1,2\n2,3\n"), nil,
			want{fault: []string{"edges.csv: line 1", "--header", "--no-header"}}},
		{"names of ends that are vertices, too",
			tables("from,to\nwe,from\nto,we\n", "id,f\nfrom,1\nto,2\nwe,3\n"), nil,
			want{vertices: 3, edges: 2}},
		// no names of columns
		{"nodes without names of columns",
			tables("source,target\nu2,u3\n", "u1,0.1,1.0\nu2,0.2,2.0\nu3,.3,1\n"), nil,
			want{vertices: 3, edges: 1}},
		{"words without names of columns",
			tables("source,target\nu2,u3\n", "u1,red\nu2,blue\nu3,red\n"), labels("1"),
			want{vertices: 3, edges: 1, classes: 2}},
		{"numbers for names of columns",
			tables("source,target\nann,bob\n", "who,0,1\nann,.5,1\nbob,.25,2\n"), nil,
			want{vertices: 2, edges: 1, names: []string{"0", "1"}}},
		{"names of columns or data",
			tables("source,target\nann,bob\n", "ann,1\nbob,0\n"), nil,
			want{fault: []string{"line 1", "names of the columns, or data", "--no-header"}}},
		// text
		{"CR, semicolons and quotes",
			tables("source;target\r\"a; b\";c\rc;d\r", "id;f\r\"a; b\";1\rc;2\rd;3\r"), nil,
			want{vertices: 3, edges: 2, names: []string{"f"}}},
		{"a decimal comma",
			tables(path3, "id;f\n0;0,5\n1;1\n2;1\n"), nil,
			want{fault: []string{"line 2", `"0,5"`, "decimal comma"}}},
		{"decimal commas that part columns",
			tables(path3, "id,f\n0,0,5\n1,1,5\n2,1,5\n"), nil,
			want{fault: []string{"line 2", "decimal commas"}}},
		{"blanks, and a comment at the head",
			edges("# by a tool\nsource target weight\na b 2\nb c 3\n"), nil,
			want{vertices: 3, edges: 2, weights: []float32{2, 3}}},
		{"a comment among numbers",
			edges("source,target\n0,1\n# of, old\n1,2\n"), nil,
			want{vertices: 3, edges: 2}},
		{"a line that may be a comment",
			edges("source,target\na,b\n# of,old\nb,c\n"), nil,
			want{
				vertices: 5, edges: 3,
				says: []string{`line 3 begins with "# " and is read as a row`},
			}},
		// times
		{"a time",
			edges("source,target,Timestamp\n0,1,1289241911.7\n1,2,1\n"), nil,
			want{vertices: 3, edges: 2, says: []string{
				"Timestamp: time, not used",
				"column Timestamp of edges.csv is ignored: it is a time",
			}}},
		// merges
		{"weights that differ",
			edges("source,target,weight\n0,1,2\n0,1,3\n1,0,7\n1,1,1\n"),
			func(o *dataset.ImportOptions) { o.Undirected = dataset.Yes },
			want{vertices: 2, edges: 2, weights: []float32{7, 5}, says: []string{
				"1 edges come several times with weights that differ; each gets their sum",
				"1 pairs of edges were given in both directions",
			}}},
		{"the mean of weights",
			edges("source,target,weight\n0,1,2\n0,1,4\n"),
			func(o *dataset.ImportOptions) { o.Weights = graph.MergeMean },
			want{vertices: 2, edges: 1, weights: []float32{3}}},
		{"the first weight",
			edges("source,target,weight\n0,1,2\n0,1,4\n"),
			func(o *dataset.ImportOptions) { o.Weights = graph.MergeFirst },
			want{vertices: 2, edges: 1, weights: []float32{2}}},
		{"equal weights",
			edges("source,target,weight\n0,1,2\n0,1,2\n"), nil,
			want{vertices: 2, edges: 1, weights: []float32{4}, silent: []string{"differ"}}},
		{"no such merge",
			edges(path3), func(o *dataset.ImportOptions) { o.Weights = "median" },
			want{fault: []string{"--merge-weights median", "sum mean max min first"}}},
		// labels
		{"classes from 1 on",
			tables(path3, "id,y\n0,1\n1,2\n2,1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{0, 1, 0},
				says: []string{"classes 1, 2 of the source are numbered 0 to 1"},
			}},
		{"labels of -1 and 1",
			tables(path3, "id,y\n0,-1\n1,1\n2,-1\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 1, labels: []int32{-1, 0, -1},
				says: []string{`labels "-1" (2) are taken to mean`, "one class"},
			}},
		{"labels of -1 and 1, both classes",
			tables(path3, "id,y\n0,-1\n1,1\n2,-1\n"), noLabel(),
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{0, 1, 0},
				says: []string{"classes -1, 1 of the source"},
			}},
		{"words for none",
			tables(path3, "id,y\n0,None\n1,a\n2,NA\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 1, labels: []int32{-1, 0, -1},
				says: []string{`"NA" (1), "None" (1) are taken to mean`},
			}},
		{"a word for none that is a class",
			tables(path3, "id,y\n0,None\n1,a\n2,?\n"), noLabel("?"),
			want{
				vertices: 3, edges: 2, classes: 2, labels: []int32{0, 1, -1},
				says: []string{`"?" (1) are taken to mean`},
			}},
		{"a class for almost every vertex",
			tables("source,target\n0,1\n2,3\n", "id,y\n0,a\n1,b\n2,c\n3,d\n"), nil,
			want{
				vertices: 4, edges: 2, classes: 4,
				says: []string{"a class for almost every vertex"},
			}},
		{"several labels, and none at all",
			tables(path3, "id,p,q\n0,1,1\n1,,\n2,0,1\n"), labels("p", "q"),
			want{
				vertices: 3, edges: 2, classes: 2,
				says: []string{"1 vertices have no label", "2 vertices labelled"},
			}},
		{"some of several labels",
			tables(path3, "id,p,q\n0,1,1\n1,,1\n2,0,1\n"), labels("p", "q"),
			want{fault: []string{`line 3: column p, q: vertex "1" lacks 1 of 2 labels`}}},
		{"a class that may be none",
			tables(path3, "id,y\n0,a\n1,unknown\n2,b\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 3,
				says: []string{`1 vertices have the class "unknown"`, `--no-label "unknown"`},
			}},
		{"pandas's words for none",
			tables(path3, "id,y\n0,a\n1,<NA>\n2,#N/A\n"), nil,
			want{
				vertices: 3, edges: 2, classes: 1, labels: []int32{0, -1, -1},
				says: []string{`"#N/A" (1), "<NA>" (1) are taken to mean`},
			}},
		{"a class that is none",
			tables(path3, "id,y\n0,a\n1,unknown\n2,b\n"), noLabel("unknown"),
			want{vertices: 3, edges: 2, classes: 2, silent: []string{"may be", "have the class"}}},
		{"one-hot labels",
			tables(path3, "id,p,q\n0,1,0\n1,0,1\n2,1,0\n"), labels("p", "q"),
			want{vertices: 3, edges: 2, classes: 2, says: []string{"labels seem to be one-hot"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			var o dataset.ImportOptions
			inFiles(c.files...)(t, dir, &o)
			if c.change != nil {
				c.change(&o)
			}
			o.Out = filepath.Join(t.TempDir(), "d")
			rehearsed := o
			rehearsed.DryRun, rehearsed.Out = true, ""
			dry, dryErr := dataset.Import(rehearsed)
			r, err := dataset.Import(o)
			if fmt.Sprint(dryErr) != fmt.Sprint(err) {
				t.Errorf("a dry run: %v, and then %v", dryErr, err)
			}
			for _, text := range c.fault {
				if !strings.Contains(fmt.Sprint(err), text) {
					t.Errorf("%v, want %q", err, text)
				}
			}
			if c.fault != nil || err != nil {
				if c.fault == nil {
					t.Error(err)
				}
				return
			}
			if !slices.Equal(dry.Reading, r.Reading) || !slices.Equal(dry.Notes, r.Notes) ||
				dry.Vertices != r.Vertices || dry.Edges != r.Edges {
				t.Errorf("a dry run says\n%s\nand then\n%s", dry, r)
			}
			d, err := dataset.Open(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Verify(); err != nil {
				t.Error(err)
			}
			m := d.Meta
			if m.Vertices != c.vertices || m.Edges != c.edges || m.Classes != c.classes {
				t.Errorf("%d vertices, %d edges, %d classes", m.Vertices, m.Edges, m.Classes)
			}
			if c.names != nil && !slices.Equal(m.FeatureNames, c.names) {
				t.Errorf("features %q", m.FeatureNames)
			}
			if c.labels != nil && !slices.Equal(npy.View[int32](d.Labels.Data), c.labels) {
				t.Errorf("labels %v", d.Labels)
			}
			if c.features != nil &&
				!slices.Equal(load[float32](t, d.Dir, "features.npy"), c.features) {
				t.Errorf("features %v", load[float32](t, d.Dir, "features.npy"))
			}
			if c.weights != nil && !slices.Equal(d.Weights, c.weights) {
				t.Errorf("weights %v", d.Weights)
			}
			if s := c.split; (s[0] != nil || s[1] != nil || s[2] != nil) &&
				(!slices.Equal(d.Split.Train, s[0]) || !slices.Equal(d.Split.Valid, s[1]) ||
					!slices.Equal(d.Split.Test, s[2])) {
				t.Errorf("split %v", d.Split)
			}
			for _, text := range c.says {
				if !strings.Contains(r.String(), text) {
					t.Errorf("the report lacks %q:\n%s", text, r)
				}
			}
			for _, text := range c.silent {
				if strings.Contains(r.String(), text) {
					t.Errorf("the report has %q:\n%s", text, r)
				}
			}
			if !slices.Equal(m.Provenance.Reading, r.Reading) {
				t.Errorf("meta.json has %v", m.Provenance.Reading)
			}
		})
	}
}
