// reference_page
