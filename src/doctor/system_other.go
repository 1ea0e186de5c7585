//go:build !linux

package doctor

import "os"

// ThisProcess knows of none here.
func ThisProcess() Limits { return Limits{SharedFree: -1} }

// dropCache does nothing here: reading a file measures the cache.
func dropCache(*os.File) {}
