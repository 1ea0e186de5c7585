package report

// This test opens a page in a real browser, and skips where there is none.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"halognn/src/base/chart"
)

// measure shows the page in frames of two widths, opens what is folded, uses it as a reader does,
// and lists in its title what is wrong.
const measure = `<body><script>
const faults = [], until = ms => new Promise(done => setTimeout(done, ms));
async function look(width) {
  const frame = document.createElement('iframe');
  frame.style = 'width:' + width + 'px;height:2000px;border:0';
  frame.src = '/';
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; });
  const page = frame.contentDocument, say = what => faults.push(width + ': ' + what);
  frame.contentWindow.onerror = say;
  for (const d of page.querySelectorAll('details')) d.open = true;
  const drawing = () =>
    page.querySelectorAll('.uplot').length < page.querySelectorAll('.curves').length;
  for (let i = 0; i < 20 && drawing(); i++) await until(200);
  await until(200);
  const wide = page.documentElement.scrollWidth;
  if (wide > width) say('the page is ' + wide + ' wide');
  const plots = page.querySelectorAll('.curves'), drawn = page.querySelectorAll('.uplot canvas');
  if (plots.length !== drawn.length) say(drawn.length + ' of ' + plots.length + ' plots');
  for (const e of page.querySelectorAll('.uplot, .bar, p, summary, h1, h2')) {
    const box = e.getBoundingClientRect();
    const of = e.tagName + ' ' + e.className, text = e.textContent.slice(0, 40);
    if (box.right > width + 1 || box.left < -1) say(of + ' leaves the page: ' + text);
  }
  const over = page.querySelector('.u-over'), box = over.getBoundingClientRect();
  const move = (type, x) => over.dispatchEvent(new MouseEvent(type, {
    clientX: box.left + x, clientY: box.top + 9, button: 0, bubbles: true,
  }));
  move('mouseenter', 9);
  move('mousemove', box.width - 9);
  await until(100);
  const legend = over.closest('.uplot').querySelectorAll('.u-legend tr:not(.aside) .u-value');
  const values = [...legend].map(e => e.textContent), number = v => /^[0-9.]+$/.test(v);
  if (!values.slice(1).every(number)) say('values under the pointer are ' + values);
  const name = page.querySelectorAll('.u-legend th')[1];
  name.click();
  await until(50);
  if (!name.parentNode.classList.contains('u-off')) say('a click on a name hides nothing');
  const head = page.querySelector('#runs th:nth-child(2)');
  const column = () => [...page.querySelectorAll('#runs tbody tr')]
    .map(r => parseFloat(r.cells[1].textContent)).filter(isFinite);
  for (const sign of [-1, 1]) {
    head.click();
    const all = column();
    if (all.some((v, i) => i && sign * (v - all[i - 1]) < 0)) say('sorted: ' + all);
  }
  return plots.length;
}
(async () => {
  try {
    const plots = [await look(1280), await look(390)];
    document.title = 'measured ' + plots + ': ' + faults.join('; ');
  } catch (e) { document.title = 'measured: ' + e; }
})();
</script></body>`

// A real browser shows the page in light and dark, prints it, and finds nothing wider than the page
// on a screen or a phone; values, names and tables answer the pointer.
func TestInABrowser(t *testing.T) {
	chromium := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		t.Skip("no chromium here: the page was not looked at in a browser (apt-get install " +
			"chromium)")
	}
	if testing.Short() {
		t.Skip("-short: a browser takes seconds")
	}
	dir, runs := t.TempDir(), fixture(t, "base", "wide", "vip", "killed", "old")
	for i := range 8 { // eight curves that end almost at one point
		r := fixture(t, "vip")[0]
		r.Name = fmt.Sprintf("a run with a name that is rather long %d", i)
		if i == 7 {
			r.Name, r.Summary["metric_name"] = strings.Repeat("世界", 30), "micro_f1"
			memory := map[string]any{strings.Repeat("long ", 20): 5e7}
			for k := range 12 {
				memory[fmt.Sprintf("an item %d", k)] = 1e7
			}
			r.Summary["memory"] = memory
		}
		for _, e := range r.Epochs {
			e["wait_fraction"] = 0.2 + float64(i)/1000
		}
		runs = append(runs, r)
	}
	if err := Write(runs, dir); err != nil {
		t.Fatal(err)
	}
	page := "file://" + filepath.Join(dir, PageFile)
	browse := func(file string, flags ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		flags = append([]string{
			"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--disable-background-networking", "--no-first-run",
			"--hide-scrollbars", "--window-size=1000,900", "--user-data-dir=" +
				filepath.Join(dir, "profile"),
		}, flags...)
		c := exec.CommandContext(ctx, chromium, append(flags, file)...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its helpers end with it
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		c.WaitDelay = time.Second
		out, err := c.Output()
		if ctx.Err() != nil {
			t.Skip("chromium did not answer within a minute: the page was not looked at in " +
				"a browser")
		}
		if err != nil {
			t.Fatalf("%s %s: %v", chromium, flags, err)
		}
		return string(out)
	}
	shot := filepath.Join(dir, "shot.png")
	for _, theme := range []struct {
		flag string
		dark bool
	}{{"--blink-settings=preferredColorScheme=1", false},
		{"--blink-settings=preferredColorScheme=0", true}} {
		browse(page, theme.flag, "--screenshot="+shot)
		if light := brightness(t, shot); light < 0.3 != theme.dark {
			t.Errorf("%s: the page's ground has brightness %.2f", theme.flag, light)
		}
	}
	pdf := filepath.Join(dir, "print.pdf")
	browse(page, "--print-to-pdf="+pdf)
	if info, err := os.Stat(pdf); err != nil || info.Size() < 10_000 {
		t.Errorf("printing gave %v, %v", info, err)
	}
	served := http.NewServeMux()
	served.Handle("/", http.FileServer(http.Dir(dir)))
	served.HandleFunc("/measure", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<!DOCTYPE html>"+measure)
	})
	served.HandleFunc("/{$}", func(w http.ResponseWriter, q *http.Request) {
		text, err := os.ReadFile(filepath.Join(dir, PageFile))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		_, _ = w.Write(text)
	})
	server := httptest.NewServer(served)
	defer server.Close()
	title := regexp.MustCompile(`<title>(measured[^<]*)</title>`).FindStringSubmatch(
		browse(server.URL+"/measure", "--virtual-time-budget=10000", "--dump-dom"))
	n := 0
	for _, c := range chartsOf(runs) {
		if _, curves := c.Drawing.(*chart.Curves); curves {
			n++
		}
	}
	if want := fmt.Sprintf("measured %d,%[1]d: ", n); title == nil || title[1] != want {
		t.Errorf("the browser says %q, expected %q", title, want)
	}

	// A served page follows a run: it has an epoch more, then finishes.
	run := filepath.Join(dir, "live")
	if err := os.CopyFS(run, os.DirFS("testdata/killed")); err != nil {
		t.Fatal(err)
	}
	summary, err := os.ReadFile("testdata/vip/summary.json")
	if err != nil {
		t.Fatal(err)
	}
	follows, err := NewServer([]string{run})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if asked++; asked == 2 {
			http.Error(w, "half of a record", http.StatusInternalServerError)
			return
		}
		if q.URL.Path == "/" && asked == 3 {
			log, err := os.ReadFile("testdata/vip/metrics.jsonl")
			if err := errors.Join(err, os.WriteFile(filepath.Join(run, "metrics.jsonl"), log,
				0o666),
				os.WriteFile(filepath.Join(run, "summary.json"), summary, 0o666)); err != nil {
				t.Error(err)
			}
		}
		follows.ServeHTTP(w, q)
	}))
	defer live.Close()
	text := browse(live.URL, "--virtual-time-budget=20000", "--dump-dom")
	if !strings.Contains(text, "Test accuracy") || strings.Contains(text, "not finished") ||
		!strings.Contains(text, `class="uplot`) {
		t.Errorf("after %d requests the page has not followed the run", asked)
	}

	// One with the same plots and tables is taken over word by word.
	words := strings.NewReplacer("<h2>Training loss</h2>", "<h2>Loss of training</h2>",
		"<summary>Runs", "<summary>All runs", "Dropout is on.", "Dropout is off.")
	var first bytes.Buffer
	if err := writePage(&first, fixture(t, "base"), true); err != nil {
		t.Fatal(err)
	}
	then, asked := words.Replace(first.String()), 0
	still := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			_, _ = w.Write(first.Bytes())
		} else {
			_, _ = io.WriteString(w, then)
		}
	}))
	defer still.Close()
	text = browse(still.URL, "--virtual-time-budget=10000", "--dump-dom")
	if then == first.String() || text != words.Replace(text) || !strings.Contains(text,
		"is off.") ||
		!strings.Contains(text, "All runs") || !strings.Contains(text, "Loss of training") {
		t.Errorf("after %d requests the page has kept words", asked)
	}
}

// brightness returns the mean brightness of the left edge of a picture, in [0, 1].
func brightness(t *testing.T, path string) float64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var shot image.Image
	if shot, err = png.Decode(f); err != nil {
		t.Fatal(err)
	}
	sum, bounds := 0.0, shot.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		r, g, b, _ := shot.At(bounds.Min.X, y).RGBA()
		sum += float64(r+g+b) / 3 / 0xffff
	}
	return sum / float64(bounds.Dy())
}
