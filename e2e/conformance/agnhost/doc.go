// Agnhost is the program of the pods of both suites: the subcommands of the image agnhost of
// Kubernetes that the upstream suite calls, and those of the suite for names.
//
//	agnhost pause                                                   run until killed
//	agnhost serve-hostname --tcp|--udp --http=false --port N        the pod's name
//	agnhost netexec --http-port N --udp-port N --udp-listen-addresses A   the same, for nodes
//	agnhost porter                                                  SERVE_{TCP,UDP,SCTP}_PORT_N of the environment
//	agnhost connect --protocol tcp|udp|sctp --timeout T HOST:PORT   one connection; a failure on standard error
//	agnhost echo --port N…                                          lines come back
//	agnhost sweep --timeout T HOST:PORT…                            many connections; as JSON
//	agnhost hold HOST:PORT FILE                                     a connection that goes on
//	agnhost state FILE                                              how it goes; as JSON
//	agnhost lookup [--server A] [--tcp] NAME TYPE                   one DNS query; as JSON
//	agnhost dns --zone FILE                                         a DNS server
//	agnhost record TEXT                                             records that it serves from now on
//
// Started as bash with -c, it runs the words of the command line as its own. SCTP is spoken
// over raw sockets: a kernel without SCTP is enough, the capability NET_RAW is needed.
package main
