"""HTTP/1.1 on gevent sockets, with the moment at which the kernel had each piece of a reply."""
