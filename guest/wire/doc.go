// Package wire is what host and guest say to each other: frames over one byte
// stream, and the bodies of those frames. Both halves use it; nothing else does.
//
// # Frames
//
// A frame is a header of nine bytes (type, stream, length; big endian) and a
// body. The host opens streams: each command and each file operation is one,
// numbered from 1, rising, never used again. Stream 0 carries only the hello.
//
//	host                                guest
//	hello{version, nonce, …}      →
//	                              ←     hello{version, nonce}
//	hold{argv, …}                 →
//	                              ←     held{holder, pid}    or failed{error}, the last of its stream
//	release                       →
//	in, stop, signal, resize      →
//	                              ←     out, err, credit …
//	                              ←     ended{status, usage}
//	                              ←     closed               the last of its stream, unless ended said so
//	drop                          →     the output is not wanted: end it, then closed
//	file{op, …}, in …             →
//	                              ←     out …, done{…} or failed{error}, the last of its stream
//
// Bodies of control frames are packed (package pack); in, out and err carry raw
// bytes, which for the lists that files are searched for are JSON. An
// empty in is the end of input; output ends when its stream is closed. There is nothing optional: each frame
// is allowed in exactly one place, and any other frame is a breach.
//
// # Flow
//
// A sender may have [Window] bytes of one channel under way. The receiver gives
// them back with credit as it uses them. So one reader that does not read holds
// back its own command and nothing else, and a receiver's memory is bounded by
// what it has allowed, whatever the other side does.
//
// What this package does not promise: secrecy or authenticity. The stream is a
// descriptor that was handed to the guest; who else holds it is the engine's to see to.
package wire
