//go:build !linux

package doctor

import "os"

// ThisProcess cannot read limits on this system, so it returns none.
func ThisProcess() Limits { return Limits{SharedFree: -1} }

// dropCache does nothing on this system, so that reading a file measures the system's cache.
func dropCache(*os.File) {}
