"""HTTP beside `headwater run`: the page, the API, health and metrics, all from what one thread sees."""
