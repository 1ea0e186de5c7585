//go:build !linux

package doctor

import "os"

// ThisProcess knows no limits on this system.
func ThisProcess() Limits { return Limits{SharedFree: -1} }

// dropCache does nothing on this system: reading a file measures the cache.
func dropCache(*os.File) {}
