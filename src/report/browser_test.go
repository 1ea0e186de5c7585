package report

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// measure runs inside the page and lists in its title every text that leaves its plot, and every
// pair of overlapping names.
const measure = `<script>
const faults = [];
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect(), seen = [];
  for (const text of svg.querySelectorAll('text')) {
    const box = text.getBoundingClientRect(), words = text.firstChild.textContent;
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) faults.push('outside: ' + words);
    for (const [other, what] of seen)
      if (Math.min(box.right, other.right) - Math.max(box.left, other.left) > 3 && Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 4)
        faults.push('overlap: ' + words + ' / ' + what);
    seen.push([box, words]);
  }
}
document.title = 'measured ' + document.querySelectorAll('svg').length + ' plots: ' + faults.join('; ');
</script></body>`

// A real browser shows the page in light and dark, prints it, and finds all text of the plots
// inside them and apart.
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
	page := filepath.Join(dir, PageFile)
	browse := func(file string, flags ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		flags = append([]string{
			"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--disable-background-networking", "--no-first-run",
			"--hide-scrollbars", "--window-size=1000,900", "--user-data-dir=" +
				filepath.Join(dir, "profile"),
		}, flags...)
		c := exec.CommandContext(ctx, chromium, append(flags, "file://"+file)...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its helpers end with it
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		c.WaitDelay = time.Second
		out, err := c.Output()
		if ctx.Err() != nil {
			t.Skip("chromium did not answer within a minute: the page was not looked at in a browser")
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
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	measured := filepath.Join(dir, "measured.html")
	if err := os.WriteFile(measured, []byte(strings.Replace(string(text), "</body>", measure, 1)),
		0o666); err != nil {
		t.Fatal(err)
	}
	title := regexp.MustCompile(`<title>(measured [^<]*)</title>`).FindStringSubmatch(browse(measured, "--dump-dom"))
	if want := fmt.Sprintf("measured %d plots: ", len(chartsOf(runs))); title == nil ||
		title[1] != want {
		t.Errorf("the browser says %q, expected %q", title, want)
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
