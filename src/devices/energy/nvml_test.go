//go:build cgo

package energy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A stub of NVML's symbols: two GPUs, whose counters grow with each read.
const stub = `
#include <string.h>
static unsigned long long total[2] = {1000, 50};
int nvmlInit_v2(void) { return BROKEN; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) {
    return e == 6 ? "Not Found" : e == 9 ? "Driver Not Loaded" : "Not Supported";
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff") == 0) *device = &total[0];
    else if (strcmp(uuid, "GPU-ffffffff-4455-6677-8899-aabbccddeeff") == 0) *device = &total[1];
    else return 6;
    return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    unsigned long long *t = device;
    if (OLD && t == &total[1]) return 3;
    *t += 2500;
    *mj = *t;
    return 0;
}
`

func library(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, out := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "libnvml.so")
	if err := os.WriteFile(source, []byte(stub), 0o666); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("cc", append(flags, "-shared", "-fPIC", "-o", out, source)...)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// The GPUs of a node add up. A library, a GPU or a counter that is not there is a reason.
func TestCountersOfGPUs(t *testing.T) {
	const first, second = "00112233445566778899aabbccddeeff", "ffffffff445566778899aabbccddeeff"
	now, old := library(t, "-DOLD=0", "-DBROKEN=0"), library(t, "-DOLD=1", "-DBROKEN=0")
	broken := library(t, "-DOLD=0", "-DBROKEN=9")
	none := t.TempDir()
	m := Open(Options{Powercap: none, NVML: now, GPUs: []string{first, second}})
	if joules, why := m.Read(); why[GPUs] != "" || !near(joules[GPUs], 5) {
		t.Errorf("two GPUs that take 2.5 J each: %v, %q", joules[GPUs], why[GPUs])
	}
	second0 := Open(Options{Powercap: none, NVML: now, GPUs: []string{first}})
	if _, why := second0.Read(); !strings.Contains(why[GPUs], "another run") {
		t.Errorf("a second meter: %q", why[GPUs])
	}
	for _, one := range []*Meter{second0, m} {
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct{ library, id, why string }{
		{filepath.Join(none, "libnvml.so"), first, "libnvml.so"},
		{now, "00000000445566778899aabbccddeeff", "Not Found"},
		{broken, first, "Driver Not Loaded"},
		{old, second, "Not Supported"},
		{now, first[:31], "ef\" is no id"},
		{now, "", "\"\" is no id"},
		{now, first[:31] + "g", "is no id of a GPU"},
	} {
		m := Open(Options{Powercap: none, NVML: c.library, GPUs: []string{c.id}})
		if joules, why := m.Read(); joules[GPUs] != 0 || !strings.Contains(why[GPUs], c.why) {
			t.Errorf("%+v: %v, %q", c, joules[GPUs], why[GPUs])
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
