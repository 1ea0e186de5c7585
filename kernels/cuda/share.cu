// Gives kernels of other devices access to the memory of a device. The other devices may belong to
// this process or to another process on this machine.
#include "context.cuh"

#include <cstring>

namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == HALOGNN_MEMORY_NAME, "the size of a name");

int told(int code) {
    if (code) cudaGetLastError(); // otherwise the next launch would return this error again
    return code;
}

int approach(halognn_cuda *c, int device) {
    int possible = 0;
    if (device == c->device) return 0;
    if (int e = cudaDeviceCanAccessPeer(&possible, c->device, device)) return e;
    if (!possible) return cudaErrorPeerAccessUnsupported;
    const int e = cudaDeviceEnablePeerAccess(device, 0);
    return e == cudaErrorPeerAccessAlreadyEnabled ? (cudaGetLastError(), 0) : e;
}

}  // namespace

extern "C" {

int halognn_cuda_share(halognn_cuda *c, void *p, unsigned char *name) {
    halognn::on(c);
    cudaIpcMemHandle_t h;
    if (int e = cudaIpcGetMemHandle(&h, p)) return told(e);
    std::memcpy(name, &h, sizeof h);
    return 0;
}

int halognn_cuda_reach(halognn_cuda *c, const unsigned char *name, void **out) {
    halognn::on(c);
    cudaIpcMemHandle_t h;
    std::memcpy(&h, name, sizeof h);
    return told(cudaIpcOpenMemHandle(out, h, cudaIpcMemLazyEnablePeerAccess));
}

int halognn_cuda_leave(halognn_cuda *c, void *p) {
    halognn::on(c);
    return told(cudaIpcCloseMemHandle(p));
}

int halognn_cuda_approach(halognn_cuda *c, int device) {
    halognn::on(c);
    return told(approach(c, device));
}

}  // extern "C"
