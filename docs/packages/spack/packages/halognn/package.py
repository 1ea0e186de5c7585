# Spack recipe. From the repository root, in a checkout of a release:
#
#   spack repo add docs/packages/spack
#   spack dev-build halognn@0.3.0
#
# dev-build takes the sources from the directory it runs in. Go fetches its modules while building:
# give GOPROXY, or GOMODCACHE of a machine that has them.
from spack.package import *


class Halognn(MakefilePackage, CudaPackage):
    """Trains graph neural networks on partitioned graphs under mpirun and srun."""

    manual_download = True

    license("Apache-2.0")

    version("0.3.0")

    variant("metis", default=True, description="Partition with METIS")
    variant("hwloc", default=True, description="Look at cores and caches with hwloc")

    depends_on("c", type="build")
    depends_on("go@1.26:", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("openblas threads=none,pthreads")
    depends_on("onednn", type="run")
    depends_on("metis@5:", when="+metis")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("cuda@11.8:", when="+cuda")

    def setup_build_environment(self, env):
        env.set("HALOGNN_MPICC", self.spec["mpi"].mpicc)
        for name in ("openblas", "metis", "hwloc"):
            if name in self.spec:
                env.append_path("CPATH", self.spec[name].prefix.include)
                env.append_path("LIBRARY_PATH", self.spec[name].prefix.lib)

    def setup_run_environment(self, env):
        env.set("HALOGNN_ROOT", self.prefix.share.halognn)

    def build(self, spec, prefix):
        make("build")
        if "+cuda" in spec:
            make("cuda")

    def install(self, spec, prefix):
        make("install", "PREFIX=" + prefix)
