// Package container makes boxes with container engines that speak the Docker
// API: Docker, Podman, Colima, OrbStack and Docker Desktop, each at its own
// endpoint on this machine.
//
// What it promises: what runs inside sees the image, read-only, and the files
// that it was given at the paths it was given; no process of the host; no
// network but the way out that it is given. It has no capabilities and can gain none. Our guest is the first
// process and is spoken to over the container's own standard streams: when this
// process ends, however it ends, the engine closes them, the guest ends, and
// with it everything inside. The environment of commands is in no argument list
// and in nothing that the engine keeps or shows.
//
// Files are hidden in a box that runs where this process may enter the box's
// mounts: as root, and in a rootless engine of its own. Else they are hidden when
// the box is made, and nothing runs in it once there is one more to hide. Private
// layers it refuses: a container is given no overlay. A way out it refuses where
// the engine is on another kernel.
//
// What it does not promise: anything about the engine itself, which is root on
// its machine, nor about the content of an image of the user's. Whether the
// engine shares this kernel is found out, never assumed; where it does not,
// processes inside are known only to the guest. That a container is gone is
// believed only of the engine that made it.
package container
